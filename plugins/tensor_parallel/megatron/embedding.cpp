// The word embedding, its rows cut over ranks: each looks up the tokens it has, and the sum has all of them.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/index_select.h>

#include <algorithm>

#include <drivetrain/toolkit/ops/ops.h>
#include <drivetrain/toolkit/units/differentiable.h>

#include "layers.h"

namespace drivetrain::megatron {
namespace {

class VocabularyEmbedding : public Embedding {
 public:
  VocabularyEmbedding(const EmbeddingSpec& spec, const Cut& cut)
      : cut_(cut),
        part_(cut.part(spec.count)),
        weight_(
            std::make_shared<Param>(spec.name + ".weight", cut.vocabulary_layout(spec.count, spec.dim), spec.init)) {
    weight_->embedding = true;
  }
  std::vector<ParamPtr> params() const override { return {weight_}; }

  // ids [B, S] to [B, s, D]
  at::Tensor forward(const at::Tensor& ids, StepContext&) override {
    const at::Tensor w = weight_->tensor, own = ids.sub(part_.first);
    return differentiable(
        {w}, [&](const Tensors&) { return Tensors{look_up(own)}; },
        [=, weight = weight_, exchange = cut_.exchange](const Tensors& dy) {
          if (!weight->trainable) return Tensors(1);
          const at::Tensor all = exchange->cuts_positions() ? exchange->gather_positions(dy[0]).finish() : dy[0];
          ops::accumulate_embedding_grad(*weight, own, all);  // other ranks' tokens are out of range, and skipped
          return Tensors(1);
        })[0];
  }

 private:
  at::Tensor look_up(const at::Tensor& own_BS) const {
    const int64_t B = own_BS.size(0), S = own_BS.size(1);
    const at::Tensor w = weight_->tensor.detach(), ids = cut_.exchange->order(own_BS);
    at::Tensor rows = cut_.exchange->rows(B, S, w.size(1), w);
    at::index_select_out(rows, w, 0, ids.clamp(0, std::max<int64_t>(part_.valid - 1, 0)));
    rows.masked_fill_(at::bitwise_or(ids.lt(0), ids.ge(part_.valid)).unsqueeze(1), 0);
    return cut_.exchange->sum_rows(rows, B, S).finish();
  }

  const Cut cut_;
  const Cut::Part part_;
  const ParamPtr weight_;
};

}  // namespace

std::shared_ptr<Embedding> vocabulary_embedding(const EmbeddingSpec& spec, const Cut& cut) {
  return std::make_shared<VocabularyEmbedding>(spec, cut);
}

}  // namespace drivetrain::megatron
