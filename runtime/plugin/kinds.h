// The sixteen kinds and how many plugins of each a run has. A new kind begins with a row here.
#pragma once

#include <string>
#include <vector>

#include "config/sections.h"  // KindRule

#include "internal.h"

namespace drivetrain {

DRIVETRAIN_INTERNAL const std::vector<KindRule>& kind_rules();
DRIVETRAIN_INTERNAL const char* kind_summary(const std::string& kind);  // one plain phrase; "" for what is no kind
bool is_kind(const std::string& name);
std::string kind_names();  // "communicator, data_parallel, ..."

}  // namespace drivetrain
