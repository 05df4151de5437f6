// Which host a process is on. Linux; any thread.
#pragma once

#include <unistd.h>

#include <fstream>
#include <string>

namespace drivetrain {

// "?" where the system does not say.
inline std::string host_name() {
  char name[256] = "?";
  ::gethostname(name, sizeof name - 1);
  return name;
}

// Differs from host to host and from boot to boot; containers of one host have the same. "?" where there is none.
inline std::string boot_id() {
  std::string id = "?";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id.empty() ? "?" : id;
}

}  // namespace drivetrain
