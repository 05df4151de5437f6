// The output layer with its loss over a cut vocabulary. Whole rows of logits exist nowhere but in generation.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <memory>
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/layers/chunked_loss.h>
#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/ops/ops.h>

#include "layers.h"
#include "vocabulary_loss.h"

namespace drivetrain::megatron {
namespace {

class VocabularyLmLoss : public LmLoss {
 public:
  VocabularyLmLoss(const LmLossSpec& spec, std::shared_ptr<LmLoss> inner, const Cut& cut)
      : vocabulary_(spec.vocab),
        args_{spec.scale, spec.softcap},
        cut_(cut),
        part_(cut.part(vocabulary_)),
        inner_(std::move(inner)),
        weight_(inner_->weight()) {}
  std::vector<ParamPtr> params() const override { return inner_->params(); }

  at::Tensor forward(const at::Tensor& x, StepContext& ctx) override {
    const at::Tensor labels = ctx.batch().labels_BS;
    if (!labels.defined()) return logits(x);
    ChunkedLoss parts;
    parts.loss_of = [this](at::Tensor& rows, const at::Tensor& of, bool gradient) {
      return vocabulary_loss_(rows, of, *cut_.exchange, part_, vocabulary_, gradient, args_);
    };
    parts.all_positions = [this](const at::Tensor& part) { return all_positions(part); };
    // Ranks add up dx while the last chunk's weight gradient is computed.
    parts.begin_sum = [this](const at::Tensor& dx) {
      return [sum = std::make_shared<Pending>(cut_.exchange->sum(dx))] { return sum->finish(); };
    };
    return chunked_loss(x, weight_, labels, std::move(parts));
  }

 private:
  at::Tensor all_positions(const at::Tensor& x) const {
    return cut_.exchange->cuts_positions() ? cut_.exchange->gather_positions(x).finish() : x;
  }

  // [B, S, V] on all ranks, without padding.
  at::Tensor logits(const at::Tensor& x) const {
    if (at::GradMode::is_enabled() && x.requires_grad())
      throw fail(ErrorCode::internal,
                 "tensor_parallel/megatron: logits without labels have no backward; turn gradients off");
    const at::Tensor own = product(all_positions(x.detach()).reshape({-1, x.size(-1)}), weight_->tensor.detach());
    const at::Tensor all = cut_.exchange->gather(own).finish();  // [ranks, N, columns]
    const at::Tensor whole = all.transpose(0, 1).reshape({own.size(0), -1}).narrow(1, 0, vocabulary_);
    return ops::logits_of(whole.reshape({x.size(0), -1, vocabulary_}), args_);
  }

  const int64_t vocabulary_;
  const ops::LogitArgs args_;
  const Cut cut_;
  const Cut::Part part_;
  const std::shared_ptr<LmLoss> inner_;
  const ParamPtr weight_;
};

}  // namespace

std::shared_ptr<LmLoss> vocabulary_lm_loss(const LmLossSpec& spec, const Cut& cut, LayerFactory& inner) {
  LmLossSpec own = spec;
  own.weight = cut.vocabulary_layout(spec.vocab, spec.dim);
  own.vocab = cut.padded(spec.vocab) / cut.exchange->ranks();
  if (spec.tied && !(spec.tied->layout.dims == own.weight->dims))
    throw fail(
        ErrorCode::config, "tensor_parallel/megatron: the output layer ", spec.name, " computes with ", spec.tied->name,
        ", which is not cut over the vocabulary; the model has to say that this embedding is of ", "the vocabulary");
  std::shared_ptr<LmLoss> layer = inner.lm_loss(own);
  if (!layer->weight())
    throw fail(ErrorCode::config, "tensor_parallel/megatron: a strategy changes what the output layer ", spec.name,
               " computes (LmLoss::weight is null), and its vocabulary cannot be cut then. Take one of the two out of ",
               "the configuration");
  return std::make_shared<VocabularyLmLoss>(spec, std::move(layer), cut);
}

}  // namespace drivetrain::megatron
