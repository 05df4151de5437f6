// Files in folders that other users may have made, or may write to.
#pragma once

#include <string>

namespace drivetrain {

// Opens `path` to add to its end. `flags`: O_WRONLY or O_RDWR, with O_CREAT, O_NONBLOCK as for open(2). A symbolic
// link is followed only if this user made it: behind another one's may be any file of this user. Returns the
// descriptor (O_CLOEXEC), or -1 with errno: ELOOP where it is a link of another user.
int open_to_append(const std::string& path, int flags);

// What is wrong with `path` where it is a symbolic link of another user, or leads to one through this user's own: whose
// link it is and what to do; else empty.
std::string foreign_link(const std::string& path);

// What to say of errno after open_to_append: "Permission denied", or what foreign_link says.
std::string append_problem(const std::string& path, int code);

}  // namespace drivetrain
