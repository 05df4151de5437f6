// Context parallelism: a rank has two chunks of every sequence, and in attention the keys and values of all of them
// pass by.
//
// Source: Liu et al. 2023, "Ring Attention with Blockwise Transformers for Near-Infinite Context". Everything but
// attention works position by position, so it needs to know nothing; attention.h says what happens there. Axis "cp" of
// the mesh; its gradients are summed with those of data parallelism.
#include <drivetrain/error.h>
#include <drivetrain/toolkit/sequence_sharing.h>

#include <algorithm>
#include <map>
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

  // What all ranks together do with other ranks' keys, for one row of one document.
  struct Reach {
    double scores = 0, keys = 0;  // computed; sent, each to one rank
    double most_keys = 0;         // from one rank to another
  };
  Reach reach(int64_t window) const {
    const std::vector<int64_t> one_document;
    const RingShape shape{1, length_ / size_, size_, one_document, window};
    Reach sum;
    for (int64_t rank = 0; rank < size_; ++rank)
      for (int64_t other = 0; other < size_; ++other) {
        if (rank == other) continue;
        double keys = 0;
        for (const Block& block : blocks_between(shape, rank, other)) {
          keys += static_cast<double>(block.keys.count);
          sum.scores += static_cast<double>(block.queries.count) * static_cast<double>(block.keys.count);
        }
        sum.keys += keys, sum.most_keys = std::max(sum.most_keys, keys);
      }
    return sum;
  }

  // Windows that are shorter than the sequence, and which share of the layers has each.
  std::map<int64_t, double> shares_of_windows(const ModelFacts& model) const {
    std::map<int64_t, double> shares;
    double all = model.flops_per_token_S;
    for (const ModelFacts::Windowed& layers : model.windowed) all += layers.flops_per_token_S;
    for (const ModelFacts::Windowed& layers : model.windowed)
      if (layers.window < length_ && all > 0) shares[layers.window] += layers.flops_per_token_S / all;
    return shares;
  }

  void plan_windows(PlanContext& ctx) {
    const RunFacts& run = ctx.run();
    if (ctx.model().windowed.empty()) return;
    const char* const why = "keys of other chunks are at a distance, which the window counts";
    ctx.need("attention.window", why);
    ctx.need("attention.q_offset", why);
    if (!run.seq_length.known() || run.seq_length % (2 * size_) != 0) return;
    length_ = run.seq_length;
    const auto percent = [](double part, double all) { return static_cast<int64_t>(100 * part / all); };
    for (const auto& [window, share] : shares_of_windows(ctx.model())) {
      const Reach reached = reach(window);
      ctx.cost(concat("layers with a window of ", window, " keys compute ", percent(reached.scores, reach(0).scores),
                      " % of the chunks of other ranks, and send ", percent(reached.keys, round_trip()),
                      " % of their keys"));
    }
  }

  // Keys that ranks send to each other where all go round.
  double round_trip() const { return static_cast<double>(length_) * static_cast<double>(size_ - 1); }

  // Keys and values travel in both directions of a step; their gradients from the next rank on until home, in float32
  // at least, but those that a window reaches straight home.
  void plan_figures(PlanContext& ctx) const {
    const ModelFacts& model = ctx.model();
    const RunFacts& run = ctx.run();
    const bool known = run.seq_length.known() && run.micro_batch_size.known() && run.accumulation.known() &&
                       run.groups_per_rank.known() && model.head_dim.known();
    if (!known) return;
    const double values_per_key = 2 * static_cast<double>(run.micro_batch_size * run.groups_per_rank * model.head_dim);
    const double values = values_per_key * static_cast<double>(run.seq_length) / static_cast<double>(size_);
    const double element = run.compute_bytes, wide = std::max(4.0, element), hops = static_cast<double>(size_ - 1);
    const double visits =
        static_cast<double>(run.rank_layers.value_or(model.num_layers)) * static_cast<double>(run.accumulation);
    double round = 1, straight = 0, most_keys = 0;  // shares of layers, the second by the keys that they send
    if (length_ > 0)
      for (const auto& [window, share] : shares_of_windows(model)) {
        const Reach reached = reach(window);
        round -= share, straight += share * reached.keys / round_trip();
        most_keys = std::max(most_keys, reached.most_keys);
      }
    round = round < 1e-9 ? 0 : round;
    const double on_the_way = (round > 0 ? 2 * values : 0) + 3 * most_keys * values_per_key;
    ctx.traffic(axis_, "keys and values",
                (run.training ? 2 : 1) * hops * values * element * visits * (round + straight));
    ctx.memory(MemoryClass::buffers, "keys and values on their way", on_the_way * element);
    if (!run.training) return;
    ctx.traffic(axis_, "gradients of keys and values", hops * values * visits * (round * wide + straight * element));
    ctx.memory(MemoryClass::buffers, "gradients of keys and values on their way",
               (round > 0 ? 2 * values : 0) * wide + 3 * most_keys * values_per_key * element);
  }

  int64_t length_ = 0;  // of the sequences, where it is planned for windows
};

}  // namespace

DRIVETRAIN_PLUGIN(ContextParallel, "ring", Ring)
