// A data-parallel strategy owns the storage of parameters and gradients from `attach` on. It sets Param::tensor and
// Param::grad, and lists what this rank's optimizer updates. Thread: main.
#pragma once

#include <drivetrain/strategy.h>

DRIVETRAIN_CONTRACT(data_parallel)

namespace drivetrain {

// Elements per partial sum of the gradient norm. Partial sums are added in the order of parameters and blocks.
inline constexpr int64_t kNormBlock = 1024;

class DRIVETRAIN_API DataParallel : public Strategy {
 public:
  static constexpr const char* kKind = "data_parallel";
  ~DataParallel() override;
  // Called once, after `attach` of all strategies. Returns one list per call of Optimizer::update.
  // All ranks that share a parameter return the same number of lists and, over all lists, the same parameters; a rank
  // that updates no part of a parameter lists it with zero elements. A parameter may be cut into several trainables;
  // each begins on a multiple of kNormBlock elements. value, working and grad are defined and have the same number of
  // elements. The runtime fills the values, then calls after_update with each list, and again after every update.
  virtual std::vector<Trainables> trainables() = 0;
  // Called after trainables(), and again whenever all values are filled or visited. Returns the parts that this rank
  // holds of parameters which are not trained. The runtime fills them and calls after_update with each list.
  // A parameter in neither result is whole on every rank: the runtime fills Param::tensor.
  virtual std::vector<Trainables> frozen() { return {}; }
};

}  // namespace drivetrain
