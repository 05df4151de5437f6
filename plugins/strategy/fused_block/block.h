// A transformer block, forward and backward by hand, from the halves of its linear layers (layers.h), the toolkit's
// operations (ops.h) and the attention plugin's halves:
//
//   s1 = x + delta                     a = proj(attention(rotary(qk_norm(qkv(norm1(s1))))))
//   s2 = s1 + r dropout(attn_norm(a))  returns {s2, r dropout(mlp_norm(proj(act(fc(norm2(s2))))))}
//
// r is the residual scale. A norm that BlockSpec::norms leaves out changes nothing; a parallel block's norm2 takes s1.
// The sum of what it returns is taken by the next unit's first norm. It counts its heads by the width of what the
// layers return and its rows by theirs, so that layers which cut width or positions over ranks (tensor parallelism)
// work in it. What lives from forward to backward is one Activations, every tensor of it until its last use.
//
// Under a split backward the layers park the products of weight gradients; gains, and biases that the block adds
// itself, get their gradients with the input's, in the same pass over memory. Owner: the model's chain; keeps the
// attention plugin alive. Thread: main. Legend: B batch, S sequence, D hidden, H heads, G key/value heads, C head size,
// F MLP width; all but D are what this rank has, and S may be less between the layers than in attention and MLP.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <drivetrain/attention.h>
#include <drivetrain/layers.h>
#include <drivetrain/toolkit/layers/operand_linear.h>

#include "block_layers.h"

namespace drivetrain::fused_block {

// Beyond what the recompute policy says.
struct BlockOptions {
  bool recompute_cheap = true;  // norms' outputs and activations are not kept
  int64_t mlp_chunk = 0;        // positions whose MLP is computed at a time, and nothing of it kept; 0: all
  bool gelu_fusion = false;     // GELU and its gradient in the MLP's products, where they can be
  // Told whenever the GPU has no kernel for them with so many rows.
  std::function<void(const std::string& block, int64_t rows)> misses_gelu = {};
};

// Whether the MLP of these layers may be computed for some positions alone. Adapters draw their dropout for all.
bool may_be_cut(const BlockLayers& layers);

struct Activations;
struct Inner;
struct NormOutput;

// A norm and the layer that reads its output.
struct NormReader {
  const NormParams& params;
  const Linear& layer;
  const OperandLinear1* takes;  // operands that are not there; null: it does not
  bool computes;                // the norm's output, in its cast: it is not written
  double kept() const;          // of that output, in 16 bits, what is kept if it is
};

// Whether a layer's backward may read its input as the layer kept it. Not where x is to be the input of another
// forward.
enum class Replace { no, yes };

// What a visit keeps, by the recompute policy's answers. Nothing at all where no backward follows.
struct Kept {
  bool norms = false, heads = false, attention = false, fc = false, act = false;
  bool by_layers = false;  // what a layer keeps of a norm's output, which no cheap computation gives again

  Kept(const KeepOfRegion& keep, bool recording, const BlockOptions& options, bool chunks);
};

class Block : public Unit {
 public:
  Block(BlockSpec spec, BlockLayers layers, std::shared_ptr<Attention> attention,
        std::shared_ptr<ops::RotaryPositions> positions, const BlockOptions& options);

  std::vector<ParamPtr> params() const override { return params_; }
  // {x} or {residual, delta} to {residual, delta}, [B, S, D] each. Keeps nothing where autograd's recording is off.
  Tensors forward(const Tensors& x, StepContext& ctx, Saved& saved) override;
  Tensors backward(const Tensors& dy, StepContext& ctx, Saved& saved) override;
  bool returns_summands() const override { return true; }
  bool is_block() const override { return true; }
  std::optional<UnitKeeps> keeps() const override;
  std::optional<VisitMemory> visit_memory(const VisitShape& shape, const KeepOfRegion& keep) const override;
  // Whether the MLP's products may compute GELU and its gradient for such activations. Always the same.
  bool has_gelu(at::DeviceType device, at::ScalarType dtype) const;

 private:
  // And whether they do for the rows of x, on their GPU: both or neither, forward and backward alike. Then fc holds its
  // bias.
  bool has_gelu(const at::Tensor& x) const;
  Activations begin(const Tensors& x, StepContext& ctx) const;
  ops::Heads heads_of(const at::Tensor& qkv, const Activations& a) const;
  // Without its bias where the next operation adds it.
  Linear::Options qkv_options(const at::Tensor& x, const ops::RotaryTable& table) const;
  at::Tensor attention_forward(Activations& a, const Kept& keep, StepContext& ctx) const;
  at::Tensor mlp_forward(Activations& a, const Kept& keep) const;

  // `params` of a norm that is not here: the sum alone. With `leave_y` y is not computed.
  ops::Normed norm(const at::Tensor& x, const at::Tensor& delta, const NormParams& params, bool leave_y) const;
  void restore_norm(ops::Normed& norm, const NormParams& params) const;
  at::Tensor norm_backward(const at::Tensor& dy, const at::Tensor& dsum, const ops::Normed& kept,
                           const NormParams& params) const;
  // What a branch adds to the residual stream, and the way back.
  at::Tensor leave(const at::Tensor& y, ops::Normed& kept, const NormParams& params, double dropped,
                   const RandomKey& key) const;
  at::Tensor leave_backward(const at::Tensor& dy, ops::Normed& kept, const NormParams& params, double dropped,
                            const RandomKey& key) const;
  double act_kept() const;  // of the activation, as NormReader::kept
  // The layer behind a norm, and its backward, which drops what is kept of the norm's output. Where the layer computes
  // that itself (operand_linear.h), `keep` says whether it keeps its own form of it.
  ops::Operand operand_of(const NormOutput& x) const;
  at::Tensor after_norm(const NormOutput& x, const Linear::Options& options, Replace replace, bool keep = false,
                        bool* replaced = nullptr) const;
  at::Tensor back_to_norm(const NormOutput& x, const ops::Operand& dy, WeightWork& work) const;
  NormOutput norm1_of(Activations& a) const;
  NormOutput norm2_of(Activations& a) const;
  // The MLP's first product: sets fc, and act where it computes the activation as well; restore_act does it elsewhere,
  // unless the second product computes it itself. That one keeps it in the form of its backward, or not.
  void first_product(const NormOutput& x, Inner& h, Replace replace, bool keep = false, bool* replaced = nullptr) const;
  at::Tensor second_product(Inner& h, bool keep) const;
  void restore_act(Inner& h) const;
  // The second product's backward and the activation's: the gradient of fc, computed at last by who reads it. What lies
  // between the products is read and dropped.
  ops::Operand second_backward(at::Tensor ddelta, Inner& h, WeightWork& work) const;
  void restore_mlp(Activations& a) const;
  void restore_attention(Activations& a) const;
  at::Tensor mlp_backward(const Tensors& dy, Activations& a, WeightWork& work) const;
  at::Tensor attention_backward(const at::Tensor& ds2, const at::Tensor& ds1, Activations& a, WeightWork& work) const;
  // As mlp_forward and mlp_backward, BlockOptions::mlp_chunk positions at a time.
  bool in_chunks() const { return options_.mlp_chunk > 0; }
  at::Tensor mlp_chunks_forward(Activations& a, const Kept& keep) const;
  at::Tensor mlp_chunks_backward(const Tensors& dy, Activations& a, WeightWork& work) const;

  const BlockSpec spec_;
  const BlockLayers layers_;
  const std::vector<ParamPtr> params_;
  const std::shared_ptr<Attention> attention_;
  const std::shared_ptr<ops::RotaryPositions> positions_;
  const BlockOptions options_;
  const ops::NormArgs norm_args_;
  const ops::QkNorm qk_norm_;  // q null: none
  const ops::Activation activation_;
  const NormReader reader1_, reader2_;
  const OperandLinear1* const act_reader_;  // null: the second product does not compute the activation in its cast
};

}  // namespace drivetrain::fused_block
