// The input of a layer whose positions of other ranks are still on their way. Thread: one call at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace drivetrain::megatron {

class LateInput {
 public:
  // Nothing: the input is there.
  LateInput() = default;
  // A tensor of these sizes without memory.
  LateInput(at::IntArrayRef sizes, const at::TensorOptions& options);

  const at::Tensor& tensor() const { return tensor_; }
  // From now on tensor(), and views of it that others took, have the memory of `whole`, of the same sizes and dense.
  void fill(const at::Tensor& whole) const;

 private:
  at::Tensor tensor_;
};

}  // namespace drivetrain::megatron
