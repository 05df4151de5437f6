#include "launch/this_host.h"

#include <unistd.h>

namespace drivetrain::program {

bool is_this_host(const std::string& name) {
  char own[256] = {};
  gethostname(own, sizeof own - 1);
  return same_host_name(name, "localhost") || name == "127.0.0.1" || name == "::1" || same_host_name(name, own);
}

bool is_only_this_host(const std::vector<Host>& hosts) {
  return hosts.empty() || (hosts.size() == 1 && is_this_host(hosts.front().name));
}

}  // namespace drivetrain::program
