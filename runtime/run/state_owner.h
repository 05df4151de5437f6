// Somebody who keeps something of a run from step to step. The list of them is run_state.h's. Main thread, between two
// steps.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <drivetrain/state.h>

namespace drivetrain {

// Names of its state are `name`, a slash, and what the owner calls it: "model/block.0.norm1.weight",
// "trainer/next_step". Where a rank holds several parts of a tensor, each is visited, with its layout.
struct StateOwner {
  enum class Changes { at_update, any_time };

  std::string name;                     // "model", "optimizer/adamw"
  Changes changes = Changes::any_time;  // when its tensors do; at_update: in the update of a step alone
  bool may_be_new = false;              // a run may have it and its checkpoint not; it then begins anew
  bool of_rank_0 = false;               // its numbers are counted on rank 0 alone, and differ on others
  std::function<void(StateVisitor&)> visit;
};
using RunState = std::vector<StateOwner>;

}  // namespace drivetrain
