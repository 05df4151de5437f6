// Postpones the computation of weight gradients in a split backward (zero-bubble schedules). Used by layers and units.
// Thread: main, and autograd's while a unit's backward runs; one at a time.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <drivetrain/export.h>

DRIVETRAIN_CONTRACT(weight_work)

namespace drivetrain {

// Runs a computation of weight gradients at once, or stores it in a list that Unit::backward_weight runs. A layer calls
// current() in its forward and keeps the result, since its backward may run on another thread.
class DRIVETRAIN_API WeightWork {
 public:
  using Parked = std::vector<std::function<void()>>;
  explicit WeightWork(Parked* later = nullptr) : later_(later) {}
  // The object of the unit whose forward runs on this thread. Outside of a unit's forward: a new one that runs
  // everything at once. Never null.
  static std::shared_ptr<WeightWork> current();

  // From now on, run() appends to `later`, which must outlive this object's use; null: run() runs at once.
  void put_off(Parked* later) { later_ = later; }
  bool puts_off() const { return later_ != nullptr; }
  void run(std::function<void()> work);

 private:
  Parked* later_;
};

// Makes `work` the current object of this thread as long as it exists.
class DRIVETRAIN_API CurrentWeightWork {
 public:
  explicit CurrentWeightWork(std::shared_ptr<WeightWork> work);
  CurrentWeightWork(const CurrentWeightWork&) = delete;
  ~CurrentWeightWork();

 private:
  std::shared_ptr<WeightWork> before_;
};

}  // namespace drivetrain
