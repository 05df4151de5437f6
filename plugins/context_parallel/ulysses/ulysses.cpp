// Sequence parallelism by heads: a rank has a piece of every sequence, and in attention the whole sequence for some
// heads.
//
// Source: Jacobs et al. 2023, "DeepSpeed Ulysses". Everything but attention works position by position, so it needs to
// know nothing; attention.h says what happens there. Axis "sp" of the mesh; its gradients are summed with those of data
// parallelism. With another plugin of its kind listed behind it, this one cuts the pieces that the other one makes.
#include <drivetrain/error.h>
#include <drivetrain/mesh.h>
#include <drivetrain/strategy.h>

#include <algorithm>

#include "attention.h"

namespace {

using namespace drivetrain;
using namespace drivetrain::ulysses;

constexpr const char* kAxis = "sp";

struct ContextParallel : Strategy {
  static constexpr const char* kKind = "context_parallel";
};

class Ulysses : public ContextParallel {
 public:
  struct Options {
    int64_t size = 1;
  };
  static OptionTable options() {
    return table<Options>()
        .field("size", &Options::size, "ranks that share a sequence, and the heads in attention")
        .required()
        .at_least(1);
  }

  Ulysses(const Options& options, const Services& services) : size_(options.size), services_(services) {}

  void plan(PlanContext& ctx) override {
    for (const auto& claim : ctx.claims())
      if (claim.axis == "cp" && size_ > 1)
        ctx.refuse(concat("it stands behind ", claim.by,
                          ", whose attention sees positions that only that one knows; list ",
                          "ulysses first: \"context_parallel\": [{\"type\": \"ulysses\", ...}, ...]"));
    ctx.claim_axis(kAxis, size_, true, PlanContext::kHeadsPlace);
    if (size_ == 1) return ctx.no_effect("size", "one rank has the whole sequence");
    ctx.need(
        "attention.partial_heads",
        "every rank has a part of the heads; a plugin that computes all heads alike, whatever their number, says so by "
        "AttentionAbilities::partial_heads");
    const int64_t S = ctx.run().seq_length;
    if (const int64_t below = S - S % size_; below != S)
      ctx.refuse(concat("sequences of ", S, " positions cannot be cut into ", size_,
                        " equal pieces; set seq_length to ", below > 0 ? concat(below, " or ") : "", below + size_));
    plan_heads(ctx);
  }

  void build(Builder& builder) override {
    if (size_ == 1) return;
    tensor_ranks_ = builder.mesh.size("tp");
    attention_ = std::make_shared<HeadsAttention>(builder.attention, size_);
    builder.attention = attention_;
    const int64_t index = builder.mesh.index(kAxis), ranks = size_;
    builder.batch_cuts.push_back(
        [=](const std::vector<RowRange>& positions) { return piece(positions, index, ranks); });
    check_heads(builder.facts);
  }

  void attach(UnitList&) override {
    if (attention_) attention_->set_group(services_.mesh->group(kAxis));
  }

 private:
  // The `index`th of `ranks` equal pieces.
  static std::vector<RowRange> piece(const std::vector<RowRange>& positions, int64_t index, int64_t ranks) {
    int64_t count = 0;
    for (const RowRange& range : positions) count += range.count;
    if (count % ranks != 0)
      throw fail(ErrorCode::config, "context_parallel/ulysses: ", count, " positions cannot be cut into ", ranks,
                 " equal pieces; set seq_length to a multiple");
    return part_of(positions, ranks, index);
  }

  // The plan knew all heads; those of a rank are known with the mesh.
  void check_heads(const ModelFacts& model) const {
    const int64_t heads = model.num_attention_heads / tensor_ranks_;
    if (model.num_attention_heads > 0 && heads < size_)
      throw fail(ErrorCode::config, "context_parallel/ulysses: tp ", tensor_ranks_, " leaves ", heads, " of ",
                 model.num_attention_heads, " query heads to a rank, and each of ", size_,
                 " ranks needs one; set size to ", heads, " or less, or use context_parallel/ring");
  }

  // Of the heads that tensor parallelism leaves here.
  std::vector<HeadShare> shares(const ModelFacts& model) const {
    const int64_t H = std::max<int64_t>(1, model.num_attention_heads / tensor_ranks_);
    const int64_t G = model.num_query_groups > 0 ? std::max<int64_t>(1, model.num_query_groups / tensor_ranks_) : H;
    return share_heads(H, G, size_);
  }

  void plan_heads(PlanContext& ctx) const {
    const ModelFacts& model = ctx.model();
    if (model.num_attention_heads <= 0) return;
    if (model.num_attention_heads < size_)
      return ctx.refuse(concat(model.num_attention_heads, " query heads cannot be shared out to ", size_,
                               " ranks, each of which needs one; set size to ", model.num_attention_heads,
                               " or less, or use context_parallel/ring"));
    if (model.num_attention_heads / tensor_ranks_ < size_) return;  // build has said it
    const std::vector<HeadShare> list = shares(model);
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
    const double element = run.compute_bytes, others = static_cast<double>(size_ - 1);
    const double values = static_cast<double>(run.micro_batch_size * model.head_dim) *
                          static_cast<double>(run.seq_length) /
                          static_cast<double>(std::max(size_, run.joined_ranks));  // per head
    const double layers = static_cast<double>(run.rank_layers > 0 ? run.rank_layers : model.num_layers);
    const double H = static_cast<double>(model.num_attention_heads / tensor_ranks_),
                 W = static_cast<double>(all_widths), h = static_cast<double>(own.query.count),
                 w = static_cast<double>(own.width());
    const double heads_sent = (W - w) + others * h + (H - h) + others * w;
    ctx.traffic(kAxis, "queries, keys and values by heads, and back",
                heads_sent * values * element * layers * static_cast<double>(run.accumulation));
    ctx.memory(MemoryClass::buffers, "heads on their way",
               2 * std::max(W, w * static_cast<double>(size_)) * values * element);
    if (run.training)
      ctx.memory(MemoryClass::activations, "attention's results by heads",
                 h * static_cast<double>(size_) * values * element * layers *
                     static_cast<double>(run.micro_batches_in_flight));
  }

  const int64_t size_;
  const Services& services_;
  std::shared_ptr<HeadsAttention> attention_;
  int64_t tensor_ranks_ = 1;  // as far as `build` has seen the mesh
};

}  // namespace

DRIVETRAIN_PLUGIN(ContextParallel, "ulysses", Ulysses)
