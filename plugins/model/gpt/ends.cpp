// The two ends of the chain: tokens to vectors, vectors to the loss.
#include <drivetrain/random.h>
#include <drivetrain/toolkit/units/autograd_unit.h>

#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/max.h>

#include <algorithm>

#include <drivetrain/error.h>

#include "block_spec.h"
#include "unit_memory.h"
#include "units.h"

namespace drivetrain::gpt {
namespace {

constexpr size_t kMostCuts = 64;  // cuts that depend on a batch's documents come in any number

class EmbeddingUnit : public AutogradUnit {
 public:
  EmbeddingUnit(const Shape& s, int64_t length, LayerFactory& layers)
      : AutogradUnit("embedding"),
        shape_(s),
        short_positions_(s.scaling.type == "longrope" && length == 0 ? s.scaling.original_positions : 0) {
    const InitRule init = InitRule::normal(s.init_std);
    word_ = layers.embedding({"embedding.word", s.vocab, s.hidden, init, true});
    if (!s.rotary) position_ = layers.embedding({"embedding.position", s.positions, s.hidden, init, false});
  }

  std::vector<ParamPtr> params() const override {
    std::vector<ParamPtr> all = word_->params();
    if (position_)
      for (const ParamPtr& param : position_->params()) all.push_back(param);
    return all;
  }

  std::optional<VisitMemory> visit_memory(const VisitShape& visit, const KeepOfRegion&) const override {
    return embedding_memory(shape_, visit);
  }

  Tensors run(const Tensors& in, StepContext& ctx) override {
    const at::Tensor& tokens_BS = in[0];
    check_length(ctx.positions());
    if (short_positions_ > 0) check_short(ctx);
    at::Tensor x_BSD = word_->forward(tokens_BS, ctx);
    if (shape_.embedding_scale != 1) x_BSD.mul_(rounded_scale(x_BSD.scalar_type()));
    // The words may come back cut to this rank's share of the sequence.
    if (position_) x_BSD.add_(position_->forward(position_ids_of(ctx, tokens_BS), ctx));
    if (shape_.embedding_dropout > 0 && ctx.mode() == Mode::train)
      x_BSD = dropout(x_BSD, shape_.embedding_dropout, ctx.random("embedding.dropout"));
    return {x_BSD};
  }

 private:
  // As Gemma rounds it, to the type of its weights.
  double rounded_scale(at::ScalarType dtype) const {
    const auto scale = static_cast<float>(shape_.embedding_scale);
    if (dtype == at::kBFloat16) return static_cast<float>(c10::BFloat16(scale));
    if (dtype == at::kHalf) return static_cast<float>(c10::Half(scale));
    return shape_.embedding_scale;
  }

  // The positions of activations: the batch's own [B, P], or those of every row [P].
  at::Tensor position_ids_of(StepContext& ctx, const at::Tensor& tokens_BS) {
    const at::Tensor& own_BS = ctx.batch().position_ids_BS;
    const std::vector<RowRange> positions = ctx.activation_positions();
    if (!own_BS.defined()) return ids(positions, tokens_BS);
    Tensors parts;
    for (const RowRange& columns : columns_of(positions, ctx.positions()))
      parts.push_back(own_BS.narrow(1, columns.first, columns.count));
    return parts.size() == 1 ? parts.front() : at::cat(parts, 1);
  }

  // By the whole sequence, of which this rank may have a part.
  void check_length(const std::vector<RowRange>& positions) const {
    int64_t length = 0;
    for (const RowRange& range : positions) length = std::max(length, range.first + range.count);
    if (length > shape_.positions)
      throw fail(ErrorCode::config, "model/gpt: a sequence of ", length,
                 " tokens is longer than max_position_embeddings ", shape_.positions);
  }

  // Without a run there is no length to choose the factors of longrope by: they are those of short texts.
  void check_short(StepContext& ctx) const {
    const at::Tensor& own_BS = ctx.batch().position_ids_BS;
    int64_t length = own_BS.defined() ? own_BS.max().item<int64_t>() + 1 : 0;
    for (const RowRange& range : ctx.positions()) length = std::max(length, range.first + range.count);
    if (length > short_positions_)
      throw fail(
          ErrorCode::config, "model/gpt: a text of ", length, " tokens is longer than the ", short_positions_,
          " of original_max_position_embeddings, and here rope_type longrope turns by its short_factor, since no ",
          "seq_length is known\n   use shorter texts, or evaluate in a run (\"eval\") whose seq_length is longer");
  }

  // One range is made on the device. Several come from the host, once: a recorded step may copy nothing from there, and
  // reads what it found when it was recorded.
  at::Tensor ids(const std::vector<RowRange>& positions, const at::Tensor& like) {
    if (positions.size() == 1) {
      const RowRange& all = positions.front();
      return at::arange(all.first, all.first + all.count, like.options());
    }
    for (const auto& [known, ids] : ids_)
      if (known == positions && ids.device() == like.device()) return ids;
    if (ids_.size() >= kMostCuts) ids_.clear();
    return ids_.emplace_back(positions, position_ids(positions, like.device())).second;
  }

  const Shape shape_;
  const int64_t short_positions_;  // 0: any
  std::shared_ptr<Embedding> word_, position_;
  std::vector<std::pair<std::vector<RowRange>, at::Tensor>> ids_;  // of several ranges, by these
};

class HeadUnit : public AutogradUnit {
 public:
  HeadUnit(const Shape& s, const ParamPtr& word, LayerFactory& layers) : AutogradUnit("head"), shape_(s) {
    norm_ = layers.norm(final_norm_spec(s));
    LmLossSpec loss{"head", s.vocab, s.hidden, word, InitRule::normal(s.init_std)};
    loss.scale = 1 / s.logit_divisor, loss.softcap = s.logit_softcap;
    loss_ = layers.lm_loss(loss);
  }

  std::vector<ParamPtr> params() const override {
    std::vector<ParamPtr> all = norm_->params();
    for (const ParamPtr& param : loss_->params()) all.push_back(param);
    return all;
  }

  std::optional<VisitMemory> visit_memory(const VisitShape& visit, const KeepOfRegion&) const override {
    return head_memory(shape_, visit);
  }

  Tensors run(const Tensors& in, StepContext& ctx) override {
    return {loss_->forward(norm_->forward(residual_stream(in), ctx), ctx)};
  }

 private:
  const Shape shape_;
  std::shared_ptr<Norm> norm_;
  std::shared_ptr<LmLoss> loss_;
};

}  // namespace

at::Tensor residual_stream(const Tensors& in) { return in.size() == 1 ? in[0] : at::add(in[0], in[1]); }

UnitPtr make_embedding(const Shape& shape, int64_t length, LayerFactory& layers) {
  return std::make_shared<EmbeddingUnit>(shape, length, layers);
}

UnitPtr make_head(const Shape& shape, const ParamPtr& word, LayerFactory& layers) {
  return std::make_shared<HeadUnit>(shape, word, layers);
}

}  // namespace drivetrain::gpt
