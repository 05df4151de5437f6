// The word embedding, its rows cut over ranks: the layer inside looks up the tokens that this rank has, and the sum has
// all of them.
#include <ATen/TensorOperators.h>

#include <drivetrain/toolkit/units/differentiable.h>

#include "layers.h"

namespace drivetrain::megatron {
namespace {

class VocabularyEmbedding : public Embedding {
 public:
  VocabularyEmbedding(std::shared_ptr<Embedding> inner, const Cut& cut, Cut::Part part)
      : inner_(std::move(inner)), cut_(cut), part_(part) {}
  std::vector<ParamPtr> params() const override { return inner_->params(); }

  // ids [B, S] to [B, s, D]
  at::Tensor forward(const at::Tensor& ids, StepContext& ctx) override {
    at::Tensor own = ids.sub(part_.first);
    own.masked_fill_(own.ge(part_.valid), -1);  // rows of padding are nobody's
    const auto exchange = cut_.exchange;
    return differentiable(
        {inner_->forward(own, ctx)},
        [&](const Tensors& part) { return Tensors{exchange->sum_of_copy(part[0].contiguous()).finish()}; },
        [exchange](const Tensors& dy) {
          return Tensors{exchange->cuts_positions() ? exchange->gather_positions(dy[0]).finish() : dy[0]};
        })[0];
  }

 private:
  const std::shared_ptr<Embedding> inner_;
  const Cut cut_;
  const Cut::Part part_;
};

}  // namespace

std::shared_ptr<Embedding> vocabulary_embedding(const EmbeddingSpec& spec, const Cut& cut, LayerFactory& inner) {
  EmbeddingSpec own = spec;
  own.count = cut.padded(spec.count) / cut.exchange->ranks();
  own.weight = cut.vocabulary_layout(spec.count, spec.dim);
  return std::make_shared<VocabularyEmbedding>(inner.embedding(own), cut, cut.part(spec.count));
}

}  // namespace drivetrain::megatron
