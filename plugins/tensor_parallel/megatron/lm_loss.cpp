// The output layer with its loss over a cut vocabulary: a chunk of logits lives once, from the product to its gradient,
// and whole rows of them nowhere but in generation.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/ops/ops.h>
#include <drivetrain/toolkit/units/differentiable.h>

#include "layers.h"
#include "vocabulary_loss.h"

namespace drivetrain::megatron {
namespace {

class VocabularyLmLoss : public LmLoss {
 public:
  VocabularyLmLoss(const LmLossSpec& spec, const Cut& cut)
      : vocabulary_(spec.vocab), cut_(cut), part_(cut.part(spec.vocab)), weight_(spec.tied) {
    const Layout layout = cut.vocabulary_layout(spec.vocab, spec.dim);
    if (weight_ && !(weight_->layout.dims == layout.dims))
      throw fail(
          ErrorCode::config, "tensor_parallel/megatron: the output layer ", spec.name, " computes with ", weight_->name,
          ", which is not cut over the vocabulary; the model has to say that this embedding is of the vocabulary");
    if (weight_) return;
    weight_ = std::make_shared<Param>(spec.name + ".weight", layout, spec.init);
    weight_->embedding = true;
  }
  std::vector<ParamPtr> params() const override { return {weight_}; }

  at::Tensor forward(const at::Tensor& x, StepContext& ctx) override {
    const at::Tensor labels = ctx.batch().labels_BS;
    if (!labels.defined()) return logits(x);
    const bool wants_dx = x.requires_grad();
    if (!at::GradMode::is_enabled() || !(wants_dx || weight_->tensor.requires_grad()))
      return loss_only(x.detach(), labels.reshape({-1}));

    // Computed in backward, into the memory of what forward returns; not a number until then, so that nobody takes it
    // for a loss.
    at::Tensor loss =
        at::full({}, std::numeric_limits<double>::quiet_NaN(), x.options().dtype(at::kDouble).requires_grad(false));
    return differentiable(
        {x, weight_->tensor}, [&](const Tensors&) { return Tensors{loss}; },
        [this, x = x.detach(), labels_N = labels.reshape({-1}), wants_dx, alias = loss.detach()](const Tensors& dy) {
          at::Tensor sum = alias;
          sum.zero_();
          return Tensors{with_gradients(x, labels_N, dy[0], wants_dx, sum), at::Tensor()};
        })[0];
  }

 private:
  at::Tensor all_positions(const at::Tensor& x) const {
    return cut_.exchange->cuts_positions() ? cut_.exchange->gather_positions(x).finish() : x;
  }
  at::Tensor loss_of(at::Tensor& logits, const at::Tensor& labels, bool gradient) const {
    return vocabulary_loss_(logits, labels, *cut_.exchange, part_, vocabulary_, gradient);
  }

  // Calls visit(first row, rows, logits of these rows, whether they are the last): those of one chunk at a time.
  template <class Visit>
  void each_chunk(const at::Tensor& x_ND, const at::Tensor& w, const Visit& visit) const {
    const int64_t N = x_ND.size(0), most = ops::loss_rows_at_once(x_ND, w);
    for (int64_t first = 0; first < N; first += most) {
      const int64_t rows = std::min(most, N - first);
      at::Tensor logits = product(x_ND.narrow(0, first, rows), w);
      visit(first, rows, logits, first + rows == N);
    }
  }

  at::Tensor loss_only(const at::Tensor& x, const at::Tensor& labels_N) const {
    const at::Tensor w = weight_->tensor.detach();
    at::Tensor loss = at::zeros({}, x.options().dtype(at::kDouble));
    each_chunk(all_positions(x).reshape({-1, w.size(1)}), w,
               [&](int64_t first, int64_t rows, at::Tensor& logits, bool) {
                 loss.add_(loss_of(logits, labels_N.narrow(0, first, rows), false));
               });
    return loss;
  }

  // dx, or undefined; the last chunk's weight gradient is computed while ranks add up dx.
  at::Tensor with_gradients(const at::Tensor& given, const at::Tensor& labels_N, const at::Tensor& dy, bool wants_dx,
                            at::Tensor& loss) const {
    const at::Tensor x_BSD = all_positions(given), w = weight_->tensor.detach(), x_ND = x_BSD.reshape({-1, w.size(1)});
    const at::Tensor scale = dy.to(x_ND.scalar_type());
    at::Tensor dx = wants_dx ? at::empty_like(x_ND) : at::Tensor();
    Pending sum;
    each_chunk(x_ND, w, [&](int64_t first, int64_t rows, at::Tensor& logits, bool last) {
      const at::Tensor x = x_ND.narrow(0, first, rows);
      loss.add_(loss_of(logits, labels_N.narrow(0, first, rows), true));
      if (wants_dx) {
        if (rows == x_ND.size(0))
          dx = product_backward(logits, w);
        else
          dx.narrow(0, first, rows).copy_(product_backward(logits, w));
        if (last) sum = cut_.exchange->sum(dx.mul_(scale).view(x_BSD.sizes()));
      }
      if (weight_->trainable) accumulate_weight_grad(*weight_, logits, x * scale);
    });
    return wants_dx ? sum.finish() : at::Tensor();
  }

  // [B, S, V] on all ranks, without padding.
  at::Tensor logits(const at::Tensor& x) const {
    if (at::GradMode::is_enabled() && x.requires_grad())
      throw fail(ErrorCode::internal,
                 "tensor_parallel/megatron: logits without labels have no backward; turn gradients off");
    const at::Tensor own = product(all_positions(x.detach()).reshape({-1, x.size(-1)}), weight_->tensor.detach());
    const at::Tensor all = cut_.exchange->gather(own).finish();  // [ranks, N, columns]
    const at::Tensor whole = all.transpose(0, 1).reshape({own.size(0), -1}).narrow(1, 0, vocabulary_);
    return whole.reshape({x.size(0), -1, vocabulary_});
  }

  const int64_t vocabulary_;
  const Cut cut_;
  const Cut::Part part_;
  ParamPtr weight_;
};

}  // namespace

std::shared_ptr<LmLoss> vocabulary_lm_loss(const LmLossSpec& spec, const Cut& cut) {
  return std::make_shared<VocabularyLmLoss>(spec, cut);
}

}  // namespace drivetrain::megatron
