// A linear layer with adapters: y = W x + scale * B (A drop(x)) for each, forward and backward by hand. What the layer
// itself computes, in whatever precision, is the layer's inside.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/layers.h>

#include "adapter.h"

namespace drivetrain::lora {

class AdaptedLinear final : public Linear {
 public:
  // `dropout`: of each adapter's input, in training.
  AdaptedLinear(std::shared_ptr<Linear> inner, std::vector<Adapter> adapters, double dropout);

  std::vector<ParamPtr> params() const override;  // those of the layer inside, then A and B of each adapter
  ParamPtr bias() const override { return inner_->bias(); }
  bool keeps_input() const override { return inner_->keeps_input(); }
  at::Tensor apply(const at::Tensor& x, const Options& options, at::Tensor* kept) const override;
  at::Tensor apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                            WeightWork& work) const override;

  // Before each visit of the layer's unit. In a mode without dropout nothing is drawn.
  void set_keys(const StepContext& ctx);

 private:
  at::Tensor factors(const Adapter& adapter, const at::Tensor& x) const;
  void write_gradients(const Adapter& adapter, const at::Tensor& dy, const at::Tensor& v, const at::Tensor& x,
                       WeightWork& work) const;

  const std::shared_ptr<Linear> inner_;
  const std::vector<Adapter> adapters_;
  const double dropout_;
  std::vector<DropoutKeys> keys_;  // of each adapter; empty: no dropout in this visit
};

}  // namespace drivetrain::lora
