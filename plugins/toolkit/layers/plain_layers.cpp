#include <drivetrain/toolkit/layers/plain_layers.h>

#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/layers/attend.h>
#include <drivetrain/toolkit/layers/cached_attention.h>
#include <drivetrain/toolkit/layers/chunked_loss.h>
#include <drivetrain/toolkit/layers/gelu_linear.h>
#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/layers/mixture.h>
#include <drivetrain/toolkit/layers/operand_linear.h>
#include <drivetrain/toolkit/ops/ops.h>
#include <drivetrain/toolkit/units/differentiable.h>

namespace drivetrain {
namespace {

ParamPtr make_param(const std::string& name, Layout layout, InitRule init, ParamRole role) {
  auto param = std::make_shared<Param>(name, std::move(layout), init);
  param->role = role;
  return param;
}
// Of the whole weight. Where rows are not cut, the part has all of them.
std::vector<int64_t> whole_blocks(const LinearSpec& spec) {
  const bool cut = spec.weight && !spec.weight->dims.empty() && !spec.weight->dims[0].axes.empty();
  return cut ? spec.weight->dims[0].blocks : spec.blocks;
}

at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

class PlainLinear : public Linear, public GeluLinear2, public OperandLinear1 {
 public:
  explicit PlainLinear(const LinearSpec& spec)
      : in_(spec.in),
        out_(spec.out),
        product_(spec.product),
        of_operands_(dynamic_cast<const OperandProduct1*>(spec.product.get())),
        weight_(make_param(spec.name + ".weight", weight_layout(spec), spec.init, ParamRole::matrix)) {
    weight_->blocks = whole_blocks(spec);
    if (!spec.bias) return;
    bias_ = make_param(spec.name + ".bias", bias_layout(spec), InitRule::zeros(), ParamRole::bias);
    bias_->blocks = weight_->blocks;
  }
  std::vector<ParamPtr> params() const override {
    return bias_ ? std::vector<ParamPtr>{weight_, bias_} : std::vector<ParamPtr>{weight_};
  }
  ParamPtr bias() const override { return bias_; }

  at::Tensor apply(const at::Tensor& x, const Options& options, at::Tensor*) const override {
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = weight_->tensor.size(0);
    const at::Tensor bias = bias_ && options.add_bias ? bias_->tensor : at::Tensor();
    const at::Tensor y = product_ ? product_->forward(rows_of(x), *weight_, bias.defined() ? bias.detach() : bias)
                                  : product(rows_of(x), weight_->tensor, bias);
    return y.view(shape);
  }

  at::Tensor apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                            WeightWork& work) const override {
    const at::Tensor dy_NO = rows_of(dy);
    at::Tensor dx;
    if (product_) {
      dx = product_->backward(dy_NO, x, weight_, options.wants_dx, work);
    } else {
      if (options.wants_dx) dx = product_backward(dy_NO, weight_->tensor);
      give_weight_gradient(dy_NO, x, work);
    }
    if (options.add_bias) give_bias_gradient(dy_NO);
    return dx.defined() ? dx.view(x.sizes()) : dx;
  }

  bool takes_operands() const override { return of_operands_ && of_operands_->takes_operands(); }
  at::Tensor apply_to(const ops::Operand& x, const Options& options, KeptOperand* kept) const override {
    std::vector<int64_t> shape = x.sizes();
    shape.back() = weight_->tensor.size(0);
    const bool add = bias_ && options.add_bias;
    return of_operands_->forward(x, *weight_, add ? bias_->tensor.detach() : at::Tensor(), kept).view(shape);
  }
  at::Tensor apply_backward_to(const ops::Operand& dy, const ops::Operand& x, const KeptOperand& kept,
                               const Options& options, WeightWork& work) const override {
    const at::Tensor dx = of_operands_->backward(dy, x, kept, weight_, options.wants_dx, work);
    if (options.add_bias) give_bias_gradient(rows_of(dy.value()));
    return dx.defined() ? dx.view(x.sizes()) : dx;
  }

  bool has_gelu(at::DeviceType device, at::ScalarType dtype) const override {
    return !product_ && gelu_product_fits(device, dtype, in_, out_);
  }
  bool finds_gelu(int64_t rows, bool backward) const override {
    return gelu_product_found(weight_->tensor, bias_ && !backward ? bias_->tensor : at::Tensor(), rows, backward);
  }
  at::Tensor apply_gelu(const at::Tensor& x, at::Tensor& pre) const override {
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = out_;
    const at::Tensor y = gelu_product(rows_of(x), weight_->tensor, bias_ ? bias_->tensor.detach() : at::Tensor(), pre);
    pre = pre.view(shape);
    return y.view(shape);
  }
  at::Tensor apply_backward_gelu(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& pre,
                                 WeightWork& work) const override {
    const at::Tensor dy_NO = rows_of(dy), dpre = gelu_product_backward(dy_NO, weight_->tensor, rows_of(pre));
    give_weight_gradient(dy_NO, x, work);
    give_bias_gradient(dy_NO);
    return dpre.view(pre.sizes());
  }

 private:
  void give_weight_gradient(const at::Tensor& dy_NO, const at::Tensor& x, WeightWork& work) const {
    if (!weight_->trainable) return;
    work.run([weight = weight_, dy_NO, x] { accumulate_weight_grad(*weight, dy_NO, rows_of(x)); });
  }
  void give_bias_gradient(const at::Tensor& dy_NO) const {
    if (bias_ && bias_->trainable) ops::accumulate_bias_grad(*bias_, dy_NO);
  }

  const int64_t in_, out_;
  const std::shared_ptr<const LinearProduct> product_;
  const OperandProduct1* const of_operands_;  // the same object; or null
  ParamPtr weight_, bias_;
};

class PlainEmbedding : public Embedding {
 public:
  explicit PlainEmbedding(const EmbeddingSpec& spec)
      : is_part_(spec.weight.has_value()),
        weight_(make_param(spec.name + ".weight", weight_layout(spec), spec.init, ParamRole::embedding)) {}
  std::vector<ParamPtr> params() const override { return {weight_}; }
  at::Tensor forward(const at::Tensor& ids, StepContext&) override {
    return is_part_ ? embedding_of_part(ids, weight_) : embedding(ids, weight_);
  }

 private:
  const bool is_part_;
  ParamPtr weight_;
};

// A weight that the offset makes the factor 1 of.
InitRule first_gain(const NormSpec& spec) {
  if (spec.offset == 0) return InitRule::ones();
  if (spec.offset == 1) return InitRule::zeros();
  throw fail(ErrorCode::config, "norm ", spec.name, ": an offset of ", spec.offset,
             " of its weight is not supported; use 0 or 1");
}

// Whatever the vectors are that it norms, they are the last dimension of x.
class PlainNorm : public Norm {
 public:
  explicit PlainNorm(const NormSpec& spec) : args_{spec.epsilon, spec.rms, spec.offset} {
    if (spec.gain) weight_ = make_param(spec.name + ".weight", weight_layout(spec), first_gain(spec), ParamRole::norm);
    if (spec.bias && !spec.rms)
      bias_ = make_param(spec.name + ".bias", weight_layout(spec), InitRule::zeros(), ParamRole::norm);
  }
  std::vector<ParamPtr> params() const override {
    std::vector<ParamPtr> all;
    for (const ParamPtr& param : {weight_, bias_})
      if (param) all.push_back(param);
    return all;
  }
  at::Tensor forward(const at::Tensor& x, StepContext&) override {
    const auto kept = std::make_shared<ops::Normed>();
    Tensors inputs = {x};
    for (const ParamPtr& param : params()) inputs.push_back(param->tensor);
    const auto value = [](const ParamPtr& param) { return param ? param->tensor.detach() : at::Tensor(); };
    return differentiable(
        inputs,
        [&](const Tensors& in) {
          *kept = ops::norm(in[0], {}, value(weight_), value(bias_), args_);
          return Tensors{std::exchange(kept->y, {})};
        },
        [kept, count = inputs.size(), args = args_, weight = weight_, bias = bias_](const Tensors& dy) {
          Tensors gradients(count);
          gradients[0] = ops::norm_backward(dy[0], {}, *kept, weight.get(), bias.get(), args);
          return gradients;
        })[0];
  }

 private:
  ops::NormArgs args_;
  ParamPtr weight_, bias_;
};

class PlainAttention : public AttentionLayer {
 public:
  PlainAttention(const AttentionSpec& spec, std::shared_ptr<Attention> attention)
      : spec_(spec), attention_(std::move(attention)) {
    if (spec_.window > 0 || spec_.softcap > 0) check_abilities();
  }
  std::vector<ParamPtr> params() const override { return {}; }
  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, StepContext& ctx) override {
    if (KeyValueCache* cache = ctx.cache())
      return cached_attention(*attention_, spec_.name, q, k, v, args(ctx), *cache);
    return attend(attention_, q, k, v, args(ctx));
  }
  AttentionMemory memory(const AttentionShape& shape) const override { return attention_->memory(shape); }
  AttentionArgs args(StepContext& ctx) const override {
    AttentionArgs args;
    args.scale = spec_.scale;
    args.causal = spec_.causal;
    args.window = spec_.window, args.softcap = spec_.softcap;
    args.heads = spec_.part;
    args.varlen.cu_seqlens = ctx.batch().cu_seqlens;
    if (ctx.mode() == Mode::train && spec_.dropout > 0) {
      args.dropout = spec_.dropout;
      args.key = ctx.random(spec_.name);
      args.key.rows = spec_.part;  // dimension 1 of the probabilities is the heads
    }
    return args;
  }

 private:
  // Known before the first step, and where nobody asked in `plan`.
  void check_abilities() const {
    const AttentionAbilities can = attention_->abilities();
    const auto refuse = [&](const char* what, auto value) {
      throw fail(ErrorCode::config, "layer ", spec_.name, " wants a ", what, " of ", value,
                 ", which the attention plugin does not support", can.remedy.empty() ? "" : "; ", can.remedy);
    };
    if (spec_.window > 0 && !can.window) refuse("window", spec_.window);
    if (spec_.softcap > 0 && !can.softcap) refuse("softcap", spec_.softcap);
  }

  AttentionSpec spec_;
  std::shared_ptr<Attention> attention_;
};

class PlainLmLoss : public LmLoss {
 public:
  explicit PlainLmLoss(const LmLossSpec& spec)
      : args_{spec.scale, spec.softcap},
        weight_(spec.tied ? spec.tied
                          : make_param(spec.name + ".weight", weight_layout(spec), spec.init, ParamRole::output)) {
    if (!(spec.scale > 0) || !(spec.softcap >= 0))
      throw fail(ErrorCode::config, "output layer ", spec.name, ": the scale of the logits must be above 0 and their ",
                 "softcap not negative; found ", spec.scale, " and ", spec.softcap);
  }
  std::vector<ParamPtr> params() const override { return {weight_}; }
  ParamPtr weight() const override { return weight_; }
  at::Tensor forward(const at::Tensor& x, StepContext& ctx) override {
    if (ctx.cache()) return ops::logits_of(linear(x.narrow(1, x.size(1) - 1, 1), weight_, nullptr), args_);
    if (!ctx.batch().labels_BS.defined()) return ops::logits_of(linear(x, weight_, nullptr), args_);
    const auto loss_of = [args = args_](at::Tensor& logits, const at::Tensor& labels, bool gradient) {
      return ops::cross_entropy_(logits, labels, gradient, 1, args);
    };
    return chunked_loss(x, weight_, ctx.batch().labels_BS, {loss_of});
  }

 private:
  const ops::LogitArgs args_;
  ParamPtr weight_;
};

class PlainLayers : public LayerFactory {
 public:
  explicit PlainLayers(std::shared_ptr<Attention> attention) : attention_(std::move(attention)) {}
  std::shared_ptr<Linear> linear(const LinearSpec& spec) override { return std::make_shared<PlainLinear>(spec); }
  std::shared_ptr<Embedding> embedding(const EmbeddingSpec& spec) override {
    return std::make_shared<PlainEmbedding>(spec);
  }
  std::shared_ptr<Norm> norm(const NormSpec& spec) override { return std::make_shared<PlainNorm>(spec); }
  std::shared_ptr<AttentionLayer> attention(const AttentionSpec& spec) override {
    return std::make_shared<PlainAttention>(spec, attention_);
  }
  std::shared_ptr<LmLoss> lm_loss(const LmLossSpec& spec) override { return std::make_shared<PlainLmLoss>(spec); }
  std::shared_ptr<Router> router(const RouterSpec& spec) override { return routers_(spec); }
  std::shared_ptr<Experts> experts(const ExpertsSpec& spec) override { return make_plain_experts(spec); }

 private:
  const std::shared_ptr<Attention> attention_;
  const RouterMaker routers_ = make_plain_routers();
};

}  // namespace

const OperandLinear1* operands_of(const Linear& layer) {
  const auto* const takes = dynamic_cast<const OperandLinear1*>(&layer);
  return takes && takes->takes_operands() ? takes : nullptr;
}

std::shared_ptr<LayerFactory> make_plain_layers(std::shared_ptr<Attention> attention) {
  return std::make_shared<PlainLayers>(std::move(attention));
}

}  // namespace drivetrain
