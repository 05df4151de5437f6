// The norm of all heads together where ranks have parts of them: each adds its squares, and in backward its products,
// to the others'. Computed by LibTorch's operators; what ranks say to each other is one number per token and pass.
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sum.h>

#include <memory>
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/units/differentiable.h>

#include "layers.h"

namespace drivetrain::megatron {
namespace {

// x [B, S, part of dim], all positions.
class NormOfHeads : public Norm {
 public:
  NormOfHeads(const NormSpec& whole, std::shared_ptr<Norm> inner, const Cut& cut)
      : whole_(whole), inner_(std::move(inner)), exchange_(cut.exchange) {
    if (whole.gain) weight_ = inner_->params()[0];
  }
  std::vector<ParamPtr> params() const override { return inner_->params(); }

  at::Tensor forward(const at::Tensor& x, StepContext&) override {
    const auto kept = std::make_shared<Kept>();
    Tensors inputs = {x};
    if (weight_) inputs.push_back(weight_->tensor);
    return differentiable(
        inputs,
        [&](const Tensors& in) {
          kept->x = in[0].detach();
          const at::Tensor s = wide(kept->x);
          kept->rstd = at::rsqrt(at::add(mean(s * s), whole_.epsilon));
          const at::Tensor y = s * kept->rstd;
          return Tensors{(weight_ ? y * gain(y) : y).to(x.scalar_type())};
        },
        [this, kept, count = inputs.size()](const Tensors& dy) {
          Tensors gradients(count);
          gradients[0] = backward(dy[0], *kept);
          return gradients;
        })[0];
  }

 private:
  struct Kept {
    at::Tensor x, rstd;
  };

  static at::Tensor wide(const at::Tensor& x) {
    return x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  }
  at::Tensor gain(const at::Tensor& like) const {
    return at::add(weight_->tensor.detach().to(like.scalar_type()), whole_.offset);
  }
  // Over the whole vector, [B, S, 1]; in the order of ranks, so that all have the same bits.
  at::Tensor mean(const at::Tensor& part) const {
    return exchange_->gather(at::sum(part, -1, true)).finish().sum(0) / static_cast<double>(whole_.dim);
  }
  at::Tensor backward(const at::Tensor& dy, const Kept& kept) const {
    const at::Tensor normal = wide(kept.x) * kept.rstd, d = wide(dy);
    const at::Tensor g = weight_ ? d * gain(d) : d;
    const at::Tensor dx = (g - normal * mean(g * normal)) * kept.rstd;
    if (weight_ && weight_->trainable) accumulate_grad(*weight_, (d * normal).flatten(0, -2).sum(0));
    return dx.to(dy.scalar_type());
  }

  const NormSpec whole_;
  const std::shared_ptr<Norm> inner_;
  const std::shared_ptr<const Exchange> exchange_;
  ParamPtr weight_;
};

// The gain alone, or nothing: what this file computes with.
bool is_plain(const std::vector<ParamPtr>& params, const NormSpec& spec) {
  if (!spec.gain) return params.empty();
  return params.size() == 1 && params[0]->name == spec.name + ".weight";
}

}  // namespace

std::shared_ptr<Norm> norm_of_heads(const NormSpec& spec, const Cut& cut, LayerFactory& inner) {
  const int64_t ranks = cut.exchange->ranks();
  if (!spec.rms || spec.heads % ranks != 0)
    throw fail(ErrorCode::config, "tensor_parallel/megatron: the norm ", spec.name, " over ", spec.heads, " heads",
               spec.rms ? concat(" cannot be cut over ", ranks, " ranks") : " subtracts a mean, which is not supported",
               "; use a size that divides the heads and an RMS norm");
  NormSpec own = spec;
  own.weight = Layout::whole({spec.dim});
  own.weight->dims = {over_ranks()};
  own.dim /= ranks, own.heads /= ranks;
  std::shared_ptr<Norm> layer = inner.norm(own);
  if (!is_plain(layer->params(), spec))
    throw fail(ErrorCode::config, "tensor_parallel/megatron: a strategy changes the parameters of the norm ", spec.name,
               ", whose heads cannot be cut then. Take one of the two out of the configuration");
  return std::make_shared<NormOfHeads>(spec, std::move(layer), cut);
}

}  // namespace drivetrain::megatron
