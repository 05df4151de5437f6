// The layers that models are made of. A model asks a LayerFactory for layers, in Model::build, and names each layer's
// role, never a strategy. The plain factory returns layers for one device. Tensor-parallel and other strategies replace
// the factory by one of theirs in Strategy::build (a decorator: it holds the inner one). Such a factory asks the inner
// one for every layer that it returns, or for this rank's part of it: what strategies further inside do to layers must
// not get lost. The runtime refuses a run in which it would.
//
// Layers create their parameters on the meta device; parameters get memory in Strategy::attach. A layer runs once per
// forward visit of its unit, and again where the unit or region is recomputed.
// Thread: main; a recomputed region's forward, and backward, also on autograd's. Stream: the current one.
// Legend: B batch, S sequence, D hidden, V vocabulary, H heads, G key/value heads. Activations have the run's dtype.
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
  // The layer's parameters, always the same and in the same order: first those that its spec names, then those that
  // decorators add. Called any number of times.
  virtual std::vector<ParamPtr> params() const = 0;
};

// The products of a linear layer, for strategies that compute them in another way (8 bits). One object per layer. Const
// calls; `work` as in weight_work.h.
class DRIVETRAIN_API LinearProduct {
 public:
  virtual ~LinearProduct();
  // x [N, in] W^T + bias: [N, out]. `bias` may be undefined.
  virtual at::Tensor forward(const at::Tensor& x, const Param& weight, const at::Tensor& bias) const = 0;
  // Returns dx [N, in] of dy [N, out], undefined if !wants_dx. Gives the weight's gradient, if it is trainable, to
  // `work`; x [..., in] is read there only.
  virtual at::Tensor backward(const at::Tensor& dy, const at::Tensor& x, const ParamPtr& weight, bool wants_dx,
                              WeightWork& work) const = 0;
};

struct LinearSpec {
  std::string name;  // "block.3.attn.qkv": parameters are name.weight [out, in] and name.bias [out]
  int64_t in = 0, out = 0;
  Split split = Split::none;
  bool bias = true;
  // Sizes of fused outputs (q, k, v), each cut evenly; their sum is `out`; empty: one.
  std::vector<int64_t> blocks = {};
  InitRule init = {};  // of the weight; biases start as zeros

  // The rest is set by strategies, never by models. A strategy that cuts the layer (tensor parallelism) asks the
  // factory inside for this rank's part of it: in, out and blocks are then the part's, `weight` is how the whole weight
  // is cut. A further parameter of the layer is cut as the weight is in the dimensions that they share; along an axis
  // that cuts the weight and not this parameter, its gradient is a partial sum (Layout::partial_over). Biases are added
  // by the strategy that cuts (Linear::Options::add_bias), so a bias is partial along no axis.
  std::optional<Layout> weight = {};                  // not set: Layout::whole({out, in})
  std::shared_ptr<const LinearProduct> product = {};  // null: LibTorch's matrix product in the tensors' dtype
};
DRIVETRAIN_API Layout weight_layout(const LinearSpec& spec);
DRIVETRAIN_API Layout bias_layout(const LinearSpec& spec);  // [out], cut as dimension 0 of the weight

// y = x W^T + bias. Hand-written units call `apply` and `apply_backward`, which do not use autograd; `forward` makes
// one differentiable function of both. Under sequence parallelism x and y may differ in the number of positions
// (dimension 1 of [B, S, ...]).
class DRIVETRAIN_API Linear : public Layer {
 public:
  struct Options {
    bool add_bias = true;  // false: the caller adds the bias to y and computes its gradient
    bool wants_dx = true;  // false: apply_backward does not compute dx
  };
  virtual at::Tensor forward(const at::Tensor& x, StepContext& ctx);  // [..., in] -> [..., out]

  // Returns y, a new tensor. If `kept` is given, the layer may set it to a form of x that apply_backward would
  // otherwise have to compute again (x with the other ranks' positions).
  virtual at::Tensor apply(const at::Tensor& x, const Options& options, at::Tensor* kept) const = 0;
  // Returns dx, or an undefined tensor if !wants_dx. `x`: the x of apply, or what apply stored in `kept`, which has the
  // leading dimensions of y. The bias's gradient is added to its slot (Param::grad) before the call returns; gradients
  // of other parameters are computed by `work` (weight_work.h), at once or later. The elements of x are read by `work`
  // only: other ranks' positions may still be on their way to it.
  virtual at::Tensor apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                                    WeightWork& work) const = 0;
  // Whether apply may set `kept`. Always the same.
  virtual bool keeps_input() const { return false; }
  // Null without a bias. With Split::columns it holds this rank's outputs, with Split::rows all of them.
  virtual ParamPtr bias() const = 0;
};

struct EmbeddingSpec {
  std::string name;  // parameter name.weight [count, dim]
  int64_t count = 0, dim = 0;
  InitRule init = {};
  bool vocabulary = false;  // the rows are tokens of the vocabulary, and may be split over ranks
  // As LinearSpec::weight: set by a strategy that splits the rows; `count` is then the number of rows of this rank,
  // padding included. Not set: Layout::whole({count, dim}).
  std::optional<Layout> weight = {};
};
class DRIVETRAIN_API Embedding : public Layer {
 public:
  // int64 [...] -> [..., dim]. With EmbeddingSpec::weight, an id outside of [0, count) is another rank's row: it gives
  // zeros, and no gradient.
  virtual at::Tensor forward(const at::Tensor& ids, StepContext& ctx) = 0;
};
DRIVETRAIN_API Layout weight_layout(const EmbeddingSpec& spec);

// Which vectors a norm brings to one length. `hidden`: the residual stream. `head`: each head alone, with one weight
// for all; where a rank has a part of the heads, the weight's gradient is a partial sum (Layout::partial_over).
// `heads`: all heads together; where ranks have parts of the heads, x and weight are cut as the outputs of
// Split::columns are, and the mean is over the parts of all ranks.
enum class NormOver { hidden, head, heads };

// y = (x - mean) / sqrt(variance + epsilon) * (offset + weight) + bias; with `rms`, y = x / sqrt(mean(x^2) + epsilon) *
// (offset + weight) (Zhang and Sennrich 2019). Computed in float32, for float64 in float64.
struct NormSpec {
  std::string name;  // parameters name.weight [dim] and name.bias [dim]
  int64_t dim = 0;
  bool rms = false;
  double epsilon = 1e-5;
  bool gain = true, bias = true;  // whether it has a weight; a bias, which an RMS norm never has
  double offset = 0;              // added to the weight, which starts as 1 - offset (Gemma: 1)
  NormOver over = NormOver::hidden;
  int64_t heads = 1;  // with NormOver::heads: how many heads `dim` is made of
  // As LinearSpec::weight: set by a strategy that cuts the heads; `dim` and `heads` are then this rank's. With
  // NormOver::heads such a strategy computes the norm itself. Not set: Layout::whole({dim}).
  std::optional<Layout> weight = {};
};
DRIVETRAIN_API Layout weight_layout(const NormSpec& spec);
class DRIVETRAIN_API Norm : public Layer {
 public:
  // x [..., dim] -> [..., dim]
  virtual at::Tensor forward(const at::Tensor& x, StepContext& ctx) = 0;
};

// Attention between the projections: the run's attention plugin with the arguments that are fixed per layer.
struct AttentionSpec {
  std::string name;  // the key of its random numbers (StepContext::random)
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  double scale = 0, dropout = 0;
  bool causal = true;
  int64_t window = 0;  // AttentionArgs::window
  // Set by strategies that cut the heads: `heads` and `kv_heads` are then this rank's, and this says which of the
  // model's query heads they are (AttentionArgs::heads). Empty: all.
  std::vector<RowRange> part = {};
  double softcap = 0;  // AttentionArgs::softcap
};
class DRIVETRAIN_API AttentionLayer : public Layer {
 public:
  // q [B, S, H, C], k and v [B, S, G, C] -> [B, S, H, C]; C head_dim, H and G this rank's heads. With
  // StepContext::cache the layer attends to the cached keys and values, too (toolkit/layers/cached_attention.h).
  virtual at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, StepContext& ctx) = 0;
  // The plugin's arguments for the current visit, for hand-written units that call the attention plugin themselves.
  virtual AttentionArgs args(StepContext& ctx) const = 0;
  // Attention::memory of the attention that the layer calls. Default: attention_memory(shape), no temporaries.
  virtual AttentionMemory memory(const AttentionShape& shape) const;
};

// The output layer together with its loss, so that an implementation can compute it in chunks or over a split
// vocabulary.
struct LmLossSpec {
  std::string name;  // parameter name.weight [vocab, dim], unless tied
  int64_t vocab = 0, dim = 0;
  ParamPtr tied = {};  // the embedding's weight, which the layer then uses; null: it has a weight of its own
  InitRule init = {};
  // As EmbeddingSpec::weight; `vocab` is then the number of rows of this rank, padding included. The strategy that set
  // it computes with LmLoss::weight and does not call forward. Not set: Layout::whole({vocab, dim}).
  std::optional<Layout> weight = {};
  double scale = 1;    // of the logits: l = scale x W^T
  double softcap = 0;  // then, if not 0, l = softcap tanh(l / softcap) (Gemma 2)
};
DRIVETRAIN_API Layout weight_layout(const LmLossSpec& spec);
class DRIVETRAIN_API LmLoss : public Layer {
 public:
  // x [B, S, dim]. With labels in ctx.batch(): returns the float64 scalar sum, over the valid tokens of the
  // micro-batch, of log sum exp(logits) - logit[label]. Without labels: returns the logits [B, S, vocab]; with
  // StepContext::cache it may return those of the last column alone, [B, 1, vocab]. If a backward pass follows, the
  // implementation may compute the scalar in it, so that each chunk of logits is computed once. Read the scalar only
  // after the backward pass.
  virtual at::Tensor forward(const at::Tensor& x, StepContext& ctx) = 0;
  // The weight, if the layer computes the logits of its spec and their loss and nothing else: a strategy that splits
  // the vocabulary then computes both with it. Null: it computes something else, and such a strategy refuses it.
  virtual ParamPtr weight() const { return nullptr; }
};

// How a router makes scores of its logits l = x W^T [T, E], computed in float32.
enum class RouterScores { softmax, sigmoid };
// A loss that keeps the experts' loads equal. Of T tokens, c_e is how often expert e was chosen, and p_te are the
// scores, divided by their sum over e. `per_layer`: E sum_e (c_e / (K T)) (mean_t p_te) of each layer (Lepikhin et al.
// 2020; Fedus et al. 2021). `pooled`: E sum_e f_e P_e with f_e = c_e / T and P_e = mean_t p_te, each the mean over all
// layers that have a router (transformers); all of them are then in one pipeline stage. The T tokens are those of one
// micro-batch of a data-parallel rank, padding included.
enum class BalanceLoss { none, pooled, per_layer };

// What a strategy keeps for one router, whose loads it balances without a loss (Wang et al. 2024).
struct RouterBias {
  at::Tensor bias_E;  // float32: added to the scores for the choice, not for the weights
  at::Tensor
      counts_E;  // int64: the router adds how often each expert was chosen in training; the strategy sets it to 0
};

// The choice of experts for every token. Scores s of the logits; if there are groups, those of `chosen_groups` groups
// stay, by the sum of each one's two largest (s + bias); of these the `chosen` largest s + bias, of equal ones the
// smaller id; their weights are s, divided by the sum over the chosen if `renormalize`, times `scale`.
struct RouterSpec {
  std::string name;  // "block.3.mlp.router": parameter name.weight [experts, hidden]
  int64_t hidden = 0, experts = 0, chosen = 0;
  RouterScores scores = RouterScores::softmax;
  bool renormalize = false;
  double scale = 1;
  int64_t groups = 1, chosen_groups = 1;
  BalanceLoss balance = BalanceLoss::none;
  double balance_weight = 0, z_weight = 0;  // z: mean_t (log sum_e exp l_te)^2 (Zoph et al. 2022)
  int64_t index = 0, layers = 1;            // which of the model's routers it is, and how many they are
  double bias_update_rate = 0;              // wanted of the strategy that sets `bias`
  bool forced = false;  // choices in turn instead of by scores, equal loads: for figures of speed alone
  InitRule init = {};

  // The rest is set by strategies, never by models.
  std::shared_ptr<RouterBias> bias = {};
  // Sums a tensor, in place, over the ranks that have other positions of the same rows between layers. Null: none has.
  std::function<void(at::Tensor&)> sum_positions = {};
};
struct Routing {
  at::Tensor experts_TK;  // int64: the experts of each token, all different; -1: none
  at::Tensor weights_TK;  // float32, with a graph: what each one's output is multiplied with
};
class DRIVETRAIN_API Router : public Layer {
 public:
  // x [B, S, hidden]; T = B S. Once per forward of the unit, outside of regions that are recomputed: it adds losses
  // (StepContext::add_loss) and figures. Where the unit is recomputed it has to choose the same experts.
  virtual Routing forward(const at::Tensor& x, StepContext& ctx) = 0;
};

// The MLPs of all experts: expert e computes proj_e(act(fc_e(x))), without biases.
struct ExpertsSpec {
  // "block.3.mlp.experts": parameters name.fc.weight [experts * W, hidden], whose rows are those of expert 0, of expert
  // 1, ...; W is ffn, or 2 ffn (gate, up) for a gated activation; and name.proj.weight [experts * hidden, ffn].
  std::string name;
  int64_t experts = 0, hidden = 0, ffn = 0;
  std::string activation = {};  // as BlockSpec::activation
  InitRule init = {}, output_init = {};

  // Set by a strategy that splits the experts: `experts` are then this rank's, and these say how the whole weights are
  // cut. Not set: Layout::whole.
  std::optional<Layout> fc = {}, proj = {};
};
DRIVETRAIN_API Layout fc_layout(const ExpertsSpec& spec);
DRIVETRAIN_API Layout proj_layout(const ExpertsSpec& spec);
class DRIVETRAIN_API Experts : public Layer {
 public:
  // x [R, hidden]: rows sorted by expert. counts int64 [experts], on the device of x: how many are of each expert.
  // Their sum may be less than R: the rows behind it are nobody's, and what is returned for them is zero. Returns [R,
  // hidden].
  virtual at::Tensor forward(const at::Tensor& x, const at::Tensor& counts, StepContext& ctx) = 0;
  // For the plan: how many rows the products of one rank get at most where forward gets `rows`.
  virtual double planned_rows(double rows) const { return rows; }
};

// The MLP of a block as a mixture (Shazeer et al. 2017): y_t = sum_k w_tk expert_tk(x_t) + g_t shared(x_t).
struct MixtureSpec {
  RouterSpec router;
  ExpertsSpec experts;
  int64_t shared_ffn = 0;    // of the MLP that every token passes; 0: there is none
  bool shared_gate = false;  // g = sigmoid(x w^T), else 1
};

// Where a block's norms stand: before attention and MLP, x + f(norm(x)); after them, x + norm(f(x)) (OLMo 2); both
// (Gemma 2).
enum class NormPlacement { before, after, both };

// A transformer block as a whole, for strategies that have a fused implementation of it. A strategy that does not cover
// all of it returns plain(), for BlockSpecs from later versions of this header, too: it checks what it knows.
struct BlockSpec {
  std::string name;  // "block.3"
  int64_t hidden = 0, ffn = 0, heads = 0, kv_heads = 0, head_dim = 0;
  // `bias`: of both matrices of the MLP; `qkv_bias`: of the fused q, k, v matrix; `proj_bias`: of the projection behind
  // attention.
  bool rms = false, bias = true, qkv_bias = true, rotary = false;
  // gelu_tanh, gelu, silu, relu; gated, act(a) * b with a first: swiglu (silu), geglu (gelu), geglu_tanh, reglu
  std::string activation = {};
  double norm_epsilon = 1e-5, hidden_dropout = 0, attention_dropout = 0;
  double init_std = 0.02, output_init_std = 0.02;
  // Radians per token after scaling, one for each pair (i, i + n) of the first 2 n elements of a head; n is the number
  // of frequencies, at most head_dim / 2. The other elements pass.
  std::vector<double> rotary_frequencies = {};
  double rotary_scale = 1;  // of cosine and sine (yarn, longrope)
  bool proj_bias = true;
  bool norm_gain = true, norm_bias = true;  // of all norms of the hidden size; an RMS norm never has a bias
  double norm_offset = 0;                   // NormSpec::offset, of norms of queries and keys too
  NormPlacement norms = NormPlacement::before;
  bool parallel = false;                    // x + attention(norm1(x)) + mlp(norm2(x)) (GPT-NeoX)
  std::optional<NormOver> qk_norm = {};     // RMS norm of queries and keys before rotary: `head` or `heads`
  double attention_scale = 0;               // 0: 1 / sqrt(head_dim)
  double attention_softcap = 0;             // AttentionArgs::softcap
  int64_t window = 0;                       // AttentionArgs::window
  double residual_scale = 1;                // of what attention and MLP add to the residual stream (Granite)
  std::optional<MixtureSpec> mixture = {};  // instead of an MLP of `ffn`
};

// Whether an activation of BlockSpec multiplies one half of its inputs with the other.
DRIVETRAIN_API bool is_gated(const std::string& activation);

// Makes layers. Each call returns a new layer with new parameters. Called in Model::build only, in the same order on
// every rank. Throws Error(config) for a spec that it cannot make.
class DRIVETRAIN_API LayerFactory {
 public:
  virtual ~LayerFactory();
  virtual std::shared_ptr<Linear> linear(const LinearSpec& spec) = 0;
  virtual std::shared_ptr<Embedding> embedding(const EmbeddingSpec& spec) = 0;
  virtual std::shared_ptr<Norm> norm(const NormSpec& spec) = 0;
  virtual std::shared_ptr<AttentionLayer> attention(const AttentionSpec& spec) = 0;
  virtual std::shared_ptr<LmLoss> lm_loss(const LmLossSpec& spec) = 0;
  // Returns a fused unit for the whole block, or plain(), the model's own unit. A fused unit makes its layers with
  // `layers`, the outermost factory, so that they are decorated by every strategy. A decorator without a fused block
  // calls block() of the inner factory with the same `layers`.
  virtual UnitPtr block(const BlockSpec&, LayerFactory& /*layers*/, const std::function<UnitPtr()>& plain) {
    return plain();
  }
  // Defaults: Error(plugin), which says to ask the factory inside.
  virtual std::shared_ptr<Router> router(const RouterSpec& spec);
  virtual std::shared_ptr<Experts> experts(const ExpertsSpec& spec);
};

}  // namespace drivetrain
