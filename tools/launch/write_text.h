#pragma once

#include <string>

namespace drivetrain::program {

// All of it, however long that takes, or as much as the other end takes before it is gone, which is nobody's error. Not
// for what ranks write, nor while they run: see Outlet. Any thread, one at a time for each descriptor.
void write_text(int fd, const std::string& text);

}  // namespace drivetrain::program
