// Matrix products whose weight gradients go straight into their slots:
// no temporary of the weight's size, no extra pass.
//
// Legend: N rows (all leading dimensions of x), I in, O out.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <drivetrain/param.h>

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

// weight's slot [O, I] := or += dy^T x, as grad_fresh says.
// dy [N, O], x [N, I]; another dtype than the slot's goes through a temporary.
DRIVETRAIN_API void accumulate_weight_grad(Param& weight, const at::Tensor& dy, const at::Tensor& x);

// x [N, I] W^T + b [N, O], and dy [N, O] W [N, I], by whichever of LibTorch's libraries is faster on this processor:
// a choice by processor and shape alone. No autograd. weight [O, I]; bias [O] or undefined.
DRIVETRAIN_API at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});
DRIVETRAIN_API at::Tensor product_backward(const at::Tensor& dy, const at::Tensor& weight);

// y [..., O] = x [..., I] W^T + b. weight [O, I]; bias [O] or null.
// Backward: dx by autograd, dW (as WeightWork::current says) and db into the slots.
DRIVETRAIN_API at::Tensor linear(const at::Tensor& x, const ParamPtr& weight, const ParamPtr& bias);

// y [..., D] = W[ids]. ids int64 of any shape; weight [V, D]. Rows of dW are added in order of position: fixed bits.
DRIVETRAIN_API at::Tensor embedding(const at::Tensor& ids, const ParamPtr& weight);

}  // namespace drivetrain
