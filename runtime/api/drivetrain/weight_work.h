// Work on weight gradients under a split backward. Thread: the unit's forward and whatever thread runs its backward.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <drivetrain/export.h>

DRIVETRAIN_CONTRACT(weight_work)

namespace drivetrain {

// Work on weight gradients, which a split backward puts off: run at once, or parked until Unit::backward_weight.
// Captured by layers in their forward, since their backward may run on another thread.
class DRIVETRAIN_API WeightWork {
 public:
  using Parked = std::vector<std::function<void()>>;
  explicit WeightWork(Parked* later = nullptr) : later_(later) {}
  // Of the unit whose forward runs on this thread; outside of one, that runs everything at once. Never null.
  static std::shared_ptr<WeightWork> current();

  // From here on: parked in `later`; null: run at once.
  void put_off(Parked* later) { later_ = later; }
  bool puts_off() const { return later_ != nullptr; }
  void run(std::function<void()> work);

 private:
  Parked* later_;
};

// While it lives, `work` is the current one of this thread.
class DRIVETRAIN_API CurrentWeightWork {
 public:
  explicit CurrentWeightWork(std::shared_ptr<WeightWork> work);
  CurrentWeightWork(const CurrentWeightWork&) = delete;
  ~CurrentWeightWork();

 private:
  std::shared_ptr<WeightWork> before_;
};

}  // namespace drivetrain
