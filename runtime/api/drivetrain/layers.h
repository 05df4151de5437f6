// What models are made of. A model asks a LayerFactory and states each layer's role, not a strategy:
// the plain factory returns layers for one device;
// tensor, context and precision plugins decorate the factory in `build`.
//
// Layers create their parameters on the meta device; memory comes in `attach`.
// Thread: main; forward also on autograd's.
// Legend: B batch, S sequence, D hidden, V vocabulary, H heads.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include <drivetrain/attention.h>
#include <drivetrain/unit.h>
#include <drivetrain/weight_work.h>

DRIVETRAIN_CONTRACT(layers)

namespace drivetrain {

// How tensor parallelism may cut a matrix: by output columns, by input rows, or not at all.
enum class Split { none, columns, rows };

class DRIVETRAIN_API Layer {
 public:
  virtual ~Layer();
  virtual std::vector<ParamPtr> params() const = 0;
};

struct LinearSpec {
  std::string name;  // "block.3.attn.qkv": parameters are name.weight [out, in] and name.bias [out]
  int64_t in = 0, out = 0;
  Split split = Split::none;
  bool bias = true;
  std::vector<int64_t> blocks;  // fused outputs (q, k, v), each cut evenly; sums to `out`; empty: one
  InitRule init;                // of the weight; biases are zeros at first
};
// Its two halves are plain functions without autograd, which hand-written units call;
// `forward` makes one differentiable function of them. Where ranks share the sequence between layers, one of x and y
// has fewer positions (dimension 1 of [B, S, ...]) than the other.
class DRIVETRAIN_API Linear : public Layer {
 public:
  struct Options {
    bool add_bias = true;  // false: the caller adds the bias to y and makes its gradient
    bool wants_dx = true;
  };
  virtual at::Tensor forward(const at::Tensor& x, StepContext& ctx);  // [..., in] -> [..., out]

  // y. `kept`, if given, may be set to what `backward` would else have to make of x again (other ranks' positions of
  // it).
  virtual at::Tensor apply(const at::Tensor& x, const Options& options, at::Tensor* kept) const = 0;
  // dx, or undefined if not wanted. `x`: as given to apply, or what that kept.
  // The weight's gradient goes to its slot by `work`, the bias's at once.
  virtual at::Tensor apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                                    WeightWork& work) const = 0;
  // Whether apply may set `kept`.
  virtual bool keeps_input() const { return false; }
  // Null where there is none; of this rank's outputs, or whole where all ranks add it to the same sum.
  virtual ParamPtr bias() const = 0;
};

struct EmbeddingSpec {
  std::string name;  // parameter name.weight [count, dim]
  int64_t count = 0, dim = 0;
  InitRule init;
  bool vocabulary = false;  // may be cut by rows over the vocabulary
};
class DRIVETRAIN_API Embedding : public Layer {
 public:
  virtual at::Tensor forward(const at::Tensor& ids, StepContext& ctx) = 0;  // int64 [...] -> [..., dim]
};

struct NormSpec {
  std::string name;  // name.weight [dim], name.bias [dim] (layernorm only)
  int64_t dim = 0;
  bool rms = false;
  double epsilon = 1e-5;
};
class DRIVETRAIN_API Norm : public Layer {
 public:
  virtual at::Tensor forward(const at::Tensor& x, StepContext& ctx) = 0;
};

// Attention between projections: the chosen attention plugin with what is fixed per layer.
struct AttentionSpec {
  std::string name;  // the site of its random numbers
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  double scale = 0, dropout = 0;
  bool causal = true;
  int64_t window = 0;
};
class DRIVETRAIN_API AttentionLayer : public Layer {
 public:
  // q [B, S, H, D], k, v [B, S, G, D] -> [B, S, H, D], with this rank's heads.
  virtual at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, StepContext& ctx) = 0;
  // For hand-written units, which call the attention plugin's halves themselves: its arguments in this step.
  virtual AttentionArgs args(StepContext& ctx) const = 0;
};

// The output layer with its loss, so that it can be computed in chunks or over a cut vocabulary.
struct LmLossSpec {
  std::string name;  // parameter name.weight [vocab, dim], unless tied
  int64_t vocab = 0, dim = 0;
  ParamPtr tied;  // the embedding's weight, or null
  InitRule init;
};
class DRIVETRAIN_API LmLoss : public Layer {
 public:
  // x [B, S, dim]. With labels in ctx.batch(): the float64 scalar sum over valid tokens of
  // log sum exp(logits) - logit[label]. Without: logits [B, S, vocab].
  // Where a backward pass follows, the scalar may be filled as late as in there, so that a chunk of logits lives once,
  // from the product to its gradient: read it afterwards.
  virtual at::Tensor forward(const at::Tensor& x, StepContext& ctx) = 0;
};

// What a fused implementation of a whole transformer block needs to know.
// A strategy that cannot do one returns plain().
struct BlockSpec {
  std::string name;  // "block.3"
  int64_t index = 0;
  int64_t hidden = 0, ffn = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool rms = false, bias = true, qkv_bias = true, rotary = false;  // qkv_bias: of the fused q, k, v matrix
  std::string activation;                                          // gelu_tanh, gelu, swiglu
  double norm_epsilon = 1e-5, rotary_base = 10000, hidden_dropout = 0, attention_dropout = 0;
  double init_std = 0.02, output_init_std = 0.02;
  std::vector<double> rotary_frequencies;  // radians per token of each pair (i, i + head_dim / 2), scaling included
};

class DRIVETRAIN_API LayerFactory {
 public:
  virtual ~LayerFactory();
  virtual std::shared_ptr<Linear> linear(const LinearSpec& spec) = 0;
  virtual std::shared_ptr<Embedding> embedding(const EmbeddingSpec& spec) = 0;
  virtual std::shared_ptr<Norm> norm(const NormSpec& spec) = 0;
  virtual std::shared_ptr<AttentionLayer> attention(const AttentionSpec& spec) = 0;
  virtual std::shared_ptr<LmLoss> lm_loss(const LmLossSpec& spec) = 0;
  // A fused block, or plain(). `layers`: the outermost factory, which the block's layers are asked of,
  // so that whoever decorates this one further has its word. Decorators hand the call on inwards, `layers` as it is.
  virtual UnitPtr block(const BlockSpec&, LayerFactory& /*layers*/, const std::function<UnitPtr()>& plain) {
    return plain();
  }
};

}  // namespace drivetrain
