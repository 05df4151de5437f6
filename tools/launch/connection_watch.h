// Whether the network under an ssh session still answers, as the kernel of the host that sshd runs on counts it: a cut
// link ends no connection by itself for a quarter of an hour.
#pragma once

#include <string>

namespace drivetrain::program {

// `table`: /proc/net/tcp or tcp6. `session`: what sshd puts into SSH_CONNECTION, "CLIENT PORT SERVER PORT". True: what
// was sent there was sent again and again, without an answer. Pure.
bool is_cut(const std::string& table, const std::string& session);

// Of this host now. False where it cannot be told.
bool session_is_cut(const std::string& session);

}  // namespace drivetrain::program
