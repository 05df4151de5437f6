// A data-parallel strategy owns parameter, gradient and shard storage after `attach`:
// it sets Param::tensor and Param::grad and says what this rank's optimizer updates. Thread: main.
#pragma once

#include <drivetrain/strategy.h>

DRIVETRAIN_CONTRACT(data_parallel)

namespace drivetrain {

// Elements per partial sum of a norm; partial sums are added in order of parameter and block.
inline constexpr int64_t kNormBlock = 1024;

class DRIVETRAIN_API DataParallel : public Strategy {
 public:
  static constexpr const char* kKind = "data_parallel";
  ~DataParallel() override;
  // Valid after attach, in chunks as the optimizer shall be called:
  // as many on every rank that shares them and, over all chunks, the same parameters; one of which this rank updates
  // nothing stands there with no elements. A parameter may be cut into several, each beginning on a multiple of
  // kNormBlock. Values are filled by the runtime;
  // after that, and after every update, it calls after_update with the chunk.
  virtual std::vector<Trainables> trainables() = 0;
  // What this rank holds of parameters that nobody updates, likewise filled and handed to after_update, once.
  // Those not named here are whole on every rank: the runtime fills Param::tensor.
  virtual std::vector<Trainables> frozen() { return {}; }
};

}  // namespace drivetrain
