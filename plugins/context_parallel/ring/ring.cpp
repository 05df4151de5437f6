// Context parallelism: a rank has two chunks of every sequence, and in attention the keys and values of all of them
// pass by.
//
// Source: Liu et al. 2023, "Ring Attention with Blockwise Transformers for Near-Infinite Context". Everything but
// attention works position by position, so it needs to know nothing; attention.h says what happens there. Axis "cp" of
// the mesh; its gradients are summed with those of data parallelism.
#include <drivetrain/error.h>
#include <drivetrain/toolkit/sequence_sharing.h>

#include <algorithm>
#include <numeric>

#include "attention.h"
#include "zigzag.h"

namespace {

using namespace drivetrain;
using namespace drivetrain::ring;

class Ring : public SequenceSharing<RingAttention> {
 public:
  static OptionTable options() { return size_table("ranks that share a sequence, round which keys and values travel"); }

  Ring(const Options& options, const Services& services) : SequenceSharing("cp", options, services) {}

  void plan(PlanContext& ctx) override {
    if (!claim(ctx, PlanContext::kContextPlace)) return;
    ctx.need("attention.returns_lse", "results over blocks of keys are merged by it");
    ctx.need("attention.non_causal", "a query sees all keys of other ranks' earlier chunks");
    if (ctx.run().documents.value_or(false))
      ctx.need("attention.varlen", "the dataset puts several documents into a row");
    ctx.take_away(PlanContext::kWholePositions, "its attention is called for blocks of keys, in an order of its own");
    ctx.need("attention.partial_keys",
             "every rank has a part of the keys; a plugin without a window, bias or sink of its own says so by "
             "AttentionAbilities::partial_keys; one that has them goes with context_parallel/ulysses");
    if (ctx.run().training && ctx.model().attention_dropout > 0)
      ctx.refuse(concat("attention_dropout ", ctx.model().attention_dropout,
                        " is not supported (0 only): no rank has all ",
                        "probabilities of a query; use context_parallel/ulysses"));
    plan_lengths(ctx);
    plan_windows(ctx);
    plan_figures(ctx);
  }

 protected:
  std::shared_ptr<RingAttention> make_attention(std::shared_ptr<Attention> inner, int64_t index) const override {
    return std::make_shared<RingAttention>(std::move(inner), index, size_);
  }
  Builder::SequenceCut make_cut(int64_t index) const override {
    return [index, ranks = size_](const auto& all, const auto& cu_seqlens) {
      return zigzag(all, index, ranks, cu_seqlens);
    };
  }

 private:
  void plan_lengths(PlanContext& ctx) const {
    const RunFacts& run = ctx.run();
    if (!run.seq_length.known()) return;
    // Others cut the positions of a rank of the ring again.
    const int64_t S = run.seq_length, inner = run.position_ranks.value_or(size_) / size_, chunks = 2 * size_;
    const int64_t unit = size_ * std::lcm(int64_t{2}, inner);  // what a rank of the ring has is cut again by the others
    if (S % unit == 0) return;
    ctx.refuse(concat("sequences of ", S, " positions cannot be cut into ", chunks, " equal chunks, two for each of ",
                      size_, " ranks",
                      inner > 1 ? concat(", and these by ", inner, " ranks that share the sequence as well") : "",
                      "; set seq_length to a multiple of ", unit, " such as ", (S / unit + 1) * unit));
  }

  // Scores that all ranks together compute of other ranks' keys.
  static int64_t products(const RingShape& shape) {
    int64_t sum = 0;
    for (int64_t rank = 0; rank < shape.ranks; ++rank)
      for (int64_t other = 0; other < shape.ranks; ++other) {
        if (rank == other) continue;
        for (const Block& block : blocks_between(shape, rank, other)) sum += block.queries.count * block.keys.count;
      }
    return sum;
  }

  // What of the chunks that pass by a window reaches, of all ranks together and for one document a row.
  void plan_windows(PlanContext& ctx) const {
    const RunFacts& run = ctx.run();
    if (ctx.model().windowed.empty()) return;
    const char* const why = "keys of other chunks are at a distance, which the window counts";
    ctx.need("attention.window", why);
    ctx.need("attention.q_offset", why);
    if (!run.seq_length.known() || run.seq_length % (2 * size_) != 0) return;
    const std::vector<int64_t> one_document;
    const int64_t S = run.seq_length;
    for (const ModelFacts::Windowed& layers : ctx.model().windowed) {
      if (layers.window >= S) continue;
      const int64_t all = products({1, S / size_, size_, one_document}),
                    reached = products({1, S / size_, size_, one_document, layers.window});
      ctx.cost(concat("layers with a window of ", layers.window, " keys compute ", 100 * reached / all,
                      " % of the chunks that pass by; keys travel past all ranks all the same"));
    }
  }

  // Keys and values travel in both directions of a step; their gradients, in float32 at least, from the next rank on
  // until home.
  void plan_figures(PlanContext& ctx) const {
    const ModelFacts& model = ctx.model();
    const RunFacts& run = ctx.run();
    const bool known = run.seq_length.known() && run.micro_batch_size.known() && run.accumulation.known() &&
                       run.groups_per_rank.known() && model.head_dim.known();
    if (!known) return;
    const double values = 2 * static_cast<double>(run.micro_batch_size * run.groups_per_rank * model.head_dim) *
                          static_cast<double>(run.seq_length) / static_cast<double>(size_);
    const double element = run.compute_bytes, wide = std::max(4.0, element), hops = static_cast<double>(size_ - 1);
    const double visits =
        static_cast<double>(run.rank_layers.value_or(model.num_layers)) * static_cast<double>(run.accumulation);
    ctx.traffic(axis_, "keys and values", (run.training ? 2 : 1) * hops * values * element * visits);
    ctx.memory(MemoryClass::buffers, "keys and values on their way", 2 * values * element);
    if (!run.training) return;
    ctx.traffic(axis_, "gradients of keys and values", hops * values * wide * visits);
    ctx.memory(MemoryClass::buffers, "gradients of keys and values on their way", 2 * values * wide);
  }
};

}  // namespace

DRIVETRAIN_PLUGIN(ContextParallel, "ring", Ring)
