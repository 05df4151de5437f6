// A data-parallel strategy owns parameter, gradient and shard storage after `attach`: it sets Param::tensor and Param::grad
// and says what this rank's optimizer updates. Thread: main.
#pragma once

#include <drivetrain/strategy.h>

namespace drivetrain {

class DRIVETRAIN_API DataParallel : public Strategy {
 public:
  static constexpr const char* kKind = "data_parallel";
  ~DataParallel() override;
  // Valid after attach, in chunks as the optimizer shall be called. Values are filled by the runtime; after that, and after
  // every update, it calls after_update with the chunk.
  virtual std::vector<Trainables> trainables() = 0;
};

}  // namespace drivetrain
