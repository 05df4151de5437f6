// The factory that answers a model's wishes with layers of this rank's share.
#include <algorithm>

#include "layers.h"

namespace drivetrain::megatron {
namespace {

class CutLayers : public LayerFactory {
 public:
  CutLayers(std::shared_ptr<LayerFactory> inner, const Cut& cut) : inner_(std::move(inner)), cut_(cut) {}

  std::shared_ptr<Linear> linear(const LinearSpec& spec) override {
    if (spec.split == Split::columns) return column_linear(spec, cut_, *inner_);
    if (spec.split == Split::rows) return row_linear(spec, cut_, *inner_);
    return replicated(inner_->linear(spec));
  }
  std::shared_ptr<Embedding> embedding(const EmbeddingSpec& spec) override {
    return spec.vocabulary ? vocabulary_embedding(spec, cut_, *inner_) : replicated(inner_->embedding(spec));
  }
  std::shared_ptr<Norm> norm(const NormSpec& spec) override {
    if (spec.over == NormOver::head) return shared_by_heads(spec);
    return spec.over == NormOver::heads ? norm_of_heads(spec, cut_, *inner_) : replicated(inner_->norm(spec));
  }
  std::shared_ptr<AttentionLayer> attention(const AttentionSpec& spec) override {
    const Exchange& e = *cut_.exchange;
    AttentionSpec own = spec;
    own.heads /= e.ranks(), own.kv_heads /= e.ranks();
    own.part = {{e.index() * own.heads, own.heads}};
    return inner_->attention(own);
  }
  std::shared_ptr<LmLoss> lm_loss(const LmLossSpec& spec) override { return vocabulary_lm_loss(spec, cut_, *inner_); }
  UnitPtr block(const BlockSpec& spec, LayerFactory& layers, const std::function<UnitPtr()>& plain) override {
    return inner_->block(spec, layers, plain);
  }
  // Experts are whole on every rank and compute with the tokens that it has between layers. Where positions are not cut
  // all ranks have the same tokens, choose alike and have the whole gradient.
  std::shared_ptr<Router> router(const RouterSpec& spec) override {
    RouterSpec own = spec;
    if (cut_.exchange->cuts_positions())
      own.sum_positions = [exchange = cut_.exchange, others = spec.sum_positions](at::Tensor& sum) {
        exchange->sum_all(sum);
        if (others) others(sum);
      };
    return replicated(inner_->router(own));
  }
  std::shared_ptr<Experts> experts(const ExpertsSpec& spec) override { return replicated(inner_->experts(spec)); }

 private:
  // Whole on every rank; where positions are cut, every rank sees other ones.
  template <class L>
  std::shared_ptr<L> replicated(std::shared_ptr<L> layer) const {
    if (cut_.exchange->cuts_positions()) mark_partial(*layer);
    return layer;
  }

  // Whole on every rank, each of which has other heads.
  std::shared_ptr<Norm> shared_by_heads(const NormSpec& spec) const {
    NormSpec own = spec;
    own.weight = weight_layout(spec);
    own.weight->partial_over = {kAxis};
    std::shared_ptr<Norm> layer = inner_->norm(own);
    mark_partial(*layer);
    return layer;
  }

  const std::shared_ptr<LayerFactory> inner_;
  const Cut cut_;
};

}  // namespace

DimSplit over_ranks(std::vector<int64_t> blocks) {
  DimSplit split;
  split.axes = {kAxis};
  split.blocks = std::move(blocks);
  return split;
}

int64_t Cut::padded(int64_t vocabulary) const {
  const int64_t step = vocabulary_multiple * exchange->ranks();
  return (vocabulary + step - 1) / step * step;
}

Cut::Part Cut::part(int64_t vocabulary) const {
  const int64_t columns = padded(vocabulary) / exchange->ranks(), first = exchange->index() * columns;
  return {first, std::clamp<int64_t>(vocabulary - first, 0, columns)};
}

Layout Cut::vocabulary_layout(int64_t vocabulary, int64_t dim) const {
  Layout layout = Layout::whole({vocabulary, dim});
  layout.dims = {over_ranks(), {}};
  layout.dims[0].padded_to = padded(vocabulary);
  return layout;
}

void mark_partial(const Layer& layer) {
  for (const ParamPtr& param : layer.params()) param->layout.partial_over = {kAxis};
}

std::shared_ptr<LayerFactory> cut_layers(std::shared_ptr<LayerFactory> inner, const Cut& cut) {
  return std::make_shared<CutLayers>(std::move(inner), cut);
}

}  // namespace drivetrain::megatron
