// A pre-norm transformer block, forward and backward by hand, from the SDK's operations (ops.h) and the attention
// plugin's halves:
//
//   s1 = x + delta                     a = proj(attention(rotary(qkv(norm1(s1)))))
//   s2 = s1 + dropout(a)               returns {s2, dropout(proj(act(fc(norm2(s2)))))}
//
// The sum of what it returns is taken by the next unit's first norm. Weight gradients are added by the products
// themselves to their slots. What lives from forward to backward is one Activations, every tensor of it until its last
// use.
//
// Under a split backward the products of weight gradients are parked; gains and biases get their gradients with the
// input's, in the same pass over memory. Owner: the model's chain; keeps the attention plugin alive. Thread: main.
// Legend: B batch, S sequence, N = B S rows, D hidden, H heads, G key/value heads, C head size, F MLP width.
#pragma once

#include <memory>

#include <drivetrain/attention.h>
#include <drivetrain/layers.h>
#include <drivetrain/ops.h>

#include "parameters.h"

namespace drivetrain::fused_block {

// Rotary tables by position, shared by the blocks of a model. Main thread.
class Positions {
 public:
  // cos and sin of the first `length` positions; undefined without frequencies.
  ops::RotaryTable table(const std::vector<double>& frequencies, int64_t length, const at::Tensor& like);

 private:
  std::vector<double> frequencies_;
  ops::RotaryTable longest_;  // so far, of the last dtype and device
};

// Beyond what the recompute policy says.
struct BlockOptions {
  bool recompute_cheap = true;  // norms' outputs and activations are not kept
};

struct Activations;
struct Kept;

class Block : public Unit {
 public:
  Block(BlockSpec spec, BlockParams params, std::shared_ptr<Attention> attention, std::shared_ptr<Positions> positions,
        const BlockOptions& options);

  std::vector<ParamPtr> params() const override { return params_.in_order(); }
  // {x} or {residual, delta} to {residual, delta}, [B, S, D] each. Keeps nothing where autograd's recording is off.
  Tensors forward(const Tensors& x, StepContext& ctx, Saved& saved) override;
  Tensors backward(const Tensors& dy, StepContext& ctx, Saved& saved) override;

 private:
  struct Gradients;

  Activations begin(const Tensors& x, StepContext& ctx) const;
  ops::Heads heads_of(const at::Tensor& y1, const Activations& a) const;
  at::Tensor attention_forward(Activations& a, const Kept& keep) const;
  at::Tensor mlp_forward(Activations& a, const Kept& keep) const;
  at::Tensor drop(const at::Tensor& x_ND, const Activations& a, const RandomKey& key) const;

  void restore_norm(ops::Normed& norm, const WeightAndBias& params) const;
  void restore_mlp(Activations& a) const;
  void restore_attention(Activations& a) const;
  at::Tensor mlp_backward(const Tensors& dy, Activations& a, Gradients& gradients) const;
  at::Tensor attention_backward(const at::Tensor& ds2, Activations& a, Gradients& gradients) const;

  const BlockSpec spec_;
  const BlockParams params_;
  const std::shared_ptr<Attention> attention_;
  const std::shared_ptr<Positions> positions_;
  const BlockOptions options_;
  const ops::NormArgs norm_args_;
  const ops::Activation activation_;
};

}  // namespace drivetrain::fused_block
