// The chosen attention as everybody calls it: what it throws is named, and what it returns is compared with what was
// asked for, a handful of numbers per call, so that a tensor it forgot is its error instead of somebody's crash or
// wrong gradients. Thread: any.
#pragma once

#include <memory>
#include <string>

#include <drivetrain/attention.h>

#include "internal.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL GuardedAttention : public Attention {
 public:
  GuardedAttention(std::string id, std::shared_ptr<Attention> inner);

  AttentionAbilities abilities() const override;
  AttentionState forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& args) const override;
  Tensors backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args) const override;
  AttentionMemory memory(const AttentionShape& shape) const override;

 private:
  std::string id_;
  std::shared_ptr<Attention> inner_;
  bool returns_lse_;
};

}  // namespace drivetrain
