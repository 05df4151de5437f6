// Sequence parallelism by heads: a rank has a piece of every sequence, and in attention the whole sequence for some
// heads.
//
// Source: Jacobs et al. 2023, "DeepSpeed Ulysses". Everything but attention works position by position, so it needs to
// know nothing; attention.h says what happens there. Axis "sp" of the mesh; its gradients are summed with those of data
// parallelism. With another plugin of its kind listed behind it, this one cuts the pieces that the other one makes.
#include <drivetrain/error.h>
#include <drivetrain/toolkit/sequence_sharing.h>

#include <algorithm>

#include "attention.h"

namespace {

using namespace drivetrain;
using namespace drivetrain::ulysses;

class Ulysses : public SequenceSharing<HeadsAttention> {
 public:
  static OptionTable options() { return size_table("ranks that share a sequence, and the heads in attention"); }

  Ulysses(const Options& options, const Services& services) : SequenceSharing("sp", options, services) {}

  void plan(PlanContext& ctx) override {
    if (!claim(ctx, PlanContext::kHeadsPlace)) return;
    ctx.split_attention_heads(size_);
    ctx.need(PlanContext::kWholePositions, "each of its ranks attends to the whole sequence");
    ctx.need(
        "attention.partial_heads",
        "every rank has a part of the heads; a plugin that computes all heads alike, whatever their number, says so by "
        "AttentionAbilities::partial_heads");
    plan_equal_pieces(ctx);
    plan_heads(ctx);
  }

 protected:
  std::shared_ptr<HeadsAttention> make_attention(std::shared_ptr<Attention> inner, int64_t) const override {
    return std::make_shared<HeadsAttention>(std::move(inner), size_);
  }
  Builder::SequenceCut make_cut(int64_t index) const override {
    return equal_pieces("context_parallel/ulysses", index);
  }

 private:
  // Of the heads that are left to a rank, from the second round on.
  void plan_heads(PlanContext& ctx) const {
    const RunFacts& run = ctx.run();
    if (!run.heads_per_rank.known() || !ctx.model().num_attention_heads.known()) return;
    const int64_t heads = run.heads_per_rank, all_heads = ctx.model().num_attention_heads;
    if (heads < size_)
      return ctx.refuse(concat(heads, heads < all_heads ? concat(" of ", all_heads) : "", " query heads",
                               heads < all_heads ? " on a rank" : "", " cannot be divided among ", size_,
                               " ranks, each of which needs one; set size to ", heads,
                               " or less, or use context_parallel/ring"));
    const std::vector<HeadShare> list = share_heads(heads, run.groups_per_rank.value_or(heads), size_);
    int64_t most = 0, all = 0, width = 0;
    for (const HeadShare& share : list) {
      most = std::max(most, share.query.count);
      all += share.query.count, width += share.width();
    }
    if (most * size_ != all)
      ctx.cost(concat(all, " query heads over ", size_, " ranks: the fullest has ", most, ", so attention takes ",
                      100 * most * size_ / all - 100, " % longer than with equal shares"));
    plan_figures(ctx, list.front(), width);
  }

  // Forward sends q, k, v and takes out; backward sends dout and takes dq, dk, dv.
  void plan_figures(PlanContext& ctx, const HeadShare& own, int64_t all_widths) const {
    const ModelFacts& model = ctx.model();
    const RunFacts& run = ctx.run();
    const bool known =
        run.seq_length.known() && run.micro_batch_size.known() && run.accumulation.known() && model.head_dim.known();
    if (!known) return;
    const double element = run.compute_bytes, others = static_cast<double>(size_ - 1);
    const double values = static_cast<double>(run.micro_batch_size * model.head_dim) *
                          static_cast<double>(run.seq_length) /
                          static_cast<double>(std::max<int64_t>(size_, run.position_ranks.value_or(1)));  // per head
    const double layers = static_cast<double>(run.rank_layers.value_or(model.num_layers));
    const double H = static_cast<double>(run.heads_per_rank.value()), W = static_cast<double>(all_widths),
                 h = static_cast<double>(own.query.count), w = static_cast<double>(own.width());
    const double heads_sent = (W - w) + others * h + (H - h) + others * w;
    ctx.traffic(axis_, "queries, keys and values by heads, and back",
                heads_sent * values * element * layers * static_cast<double>(run.accumulation));
    ctx.memory(MemoryClass::buffers, "heads on their way",
               2 * std::max(W, w * static_cast<double>(size_)) * values * element);
  }
};

}  // namespace

DRIVETRAIN_PLUGIN(ContextParallel, "ulysses", Ulysses)
