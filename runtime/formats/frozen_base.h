// Frozen weights that stand in a checkpoint by reference: the folder that the run read them from, and a digest of what
// it held. The checkpoint has no values of them. Main thread; const calls from any.
#pragma once

#include <set>
#include <string>

#include <drivetrain/checkpoint_store.h>
#include <drivetrain/value.h>

#include "internal.h"
#include "state/weight_source.h"

namespace drivetrain {

struct FrozenBase {
  std::string folder;  // a Hugging Face folder, absolute
  std::string digest;
  std::set<std::string> params;  // names; empty: the checkpoint has the values of all
};

inline constexpr const char* kFrozenBase = "frozen_base";  // the fact of a checkpoint that holds it

DRIVETRAIN_INTERNAL Value value_of(const FrozenBase& base);
// Of a checkpoint of ours. Error(checkpoint) for a fact of another form.
DRIVETRAIN_INTERNAL FrozenBase frozen_base_of(const Checkpoint& checkpoint);

// Of names, types, shapes and values of all tensors. Reads them once, on LibTorch's threads.
DRIVETRAIN_INTERNAL std::string digest_of_weights(const WeightSource& weights);

// That `folder`, a Hugging Face folder, holds what the checkpoint refers to. Error(checkpoint) naming both, also if
// nothing is there. `checkpoint`: for the message; `or_else`: what its remedy ends in.
DRIVETRAIN_INTERNAL void check_frozen_base(const FrozenBase& stored, const std::string& folder,
                                           const std::string& checkpoint, const std::string& or_else = "");

}  // namespace drivetrain
