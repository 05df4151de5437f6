// `drivetrain checkpoint diff`: what differs between two checkpoints, of any topologies. Main thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <drivetrain/value.h>

#include "checkpoint_tools/elements.h"
#include "checkpoint_tools/stored_run.h"
#include "internal.h"
#include "train/config_changes.h"

namespace drivetrain {

// "FOLDER:TAG" as folder and tag; a word that is a folder as a whole has no tag. The last colon counts.
DRIVETRAIN_INTERNAL std::pair<std::string, std::string> split_folder_and_tag(const std::string& word);

struct CheckpointDifferences {
  struct OfTensor {
    StoredTensor a, b;  // one has no name where the other checkpoint alone has the tensor
    ElementDifference elements;
  };
  std::vector<ConfigChange> config;
  std::vector<ConfigChange> counters;                                 // `effect` says nothing
  std::vector<OfTensor> tensors;                                      // that are not equal to the bit
  size_t equal_tensors = 0, tensors_beyond = 0, counters_beyond = 0;  // beyond: farther apart than the tolerance

  // The state decides. A config by itself changes no state.
  bool state_differs() const { return tensors_beyond + counters_beyond > 0; }
  bool equal_to_the_bit() const { return tensors.empty() && counters.empty(); }
};

// `tolerance`: the largest |a - b| of an element or a counter that counts as equal; nothing: every bit counts.
DRIVETRAIN_INTERNAL CheckpointDifferences differences(const Checkpoint& a, const Checkpoint& b,
                                                      std::optional<double> tolerance);

// `a`, `b`: names of the two.
DRIVETRAIN_INTERNAL std::string diff_text(const CheckpointDifferences& found, const std::string& a,
                                          const std::string& b, std::optional<double> tolerance);
DRIVETRAIN_INTERNAL Value diff_value(const CheckpointDifferences& found, const std::string& a, const std::string& b,
                                     std::optional<double> tolerance);

}  // namespace drivetrain
