// The key `param_groups` of a config: parameters that have a learning rate or weight decay of their own, or are frozen,
// whatever the optimizer. As torch's list of groups, with patterns of names and roles where torch has the parameters
// themselves. Main thread; no state.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <drivetrain/options.h>

#include "internal.h"

namespace drivetrain {

struct ParamGroup {
  std::vector<std::string> params;  // patterns of names as a shell's: "block.*.mlp.*"
  std::vector<std::string> roles;   // names of ParamRole
  std::optional<double> lr, weight_decay;
  bool frozen = false;
  Position where;

  // Of a parameter; what the group does not say holds for all.
  bool has(const std::string& name, const std::string& role) const;
};

DRIVETRAIN_INTERNAL const OptionTable& param_group_table();

// `list`: the key's value. Problems name the group by its place in the list, "param_groups[1]".
DRIVETRAIN_INTERNAL std::vector<ParamGroup> read_param_groups(const Value& list, Problems& problems);

}  // namespace drivetrain
