// The twenty kinds, and how many plugins of each a run has. A new kind begins with a row here.
#pragma once

#include <string>
#include <vector>

#include "config/sections.h"  // KindRule

#include "internal.h"

namespace drivetrain {

DRIVETRAIN_INTERNAL const std::vector<KindRule>& kind_rules();
// Those whose plugins sections name: all but the formats of checkpoints, of which every installed one is asked, and
// evaluations, which are named within one section (config/eval_sets.h).
DRIVETRAIN_INTERNAL std::vector<KindRule> chosen_kind_rules();
DRIVETRAIN_INTERNAL const char* kind_summary(const std::string& kind);  // one plain phrase; "" for what is no kind
DRIVETRAIN_INTERNAL bool is_kind(const std::string& name);
// The section that users write for a kind: "scheduler" for lr_schedule; the kind's own name where there is no other.
DRIVETRAIN_INTERNAL std::string section_of_kind(const std::string& kind);
std::string kind_names();  // "communicator, data_parallel, ..."

}  // namespace drivetrain
