// Whether a name of a host means this one.
#pragma once

#include <string>
#include <vector>

#include "launch/host_list.h"

namespace drivetrain::program {

bool is_this_host(const std::string& name);
// None at all is this host, too.
bool is_only_this_host(const std::vector<Host>& hosts);

}  // namespace drivetrain::program
