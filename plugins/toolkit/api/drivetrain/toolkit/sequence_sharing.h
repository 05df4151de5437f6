// What context-parallel strategies on one axis of the mesh have around their attention: the option `size`, the claim of
// the axis, the cut of the batch and the group that the attention talks over. How positions are cut and what the
// attention computes is the strategy's own. Main thread.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <drivetrain/context_parallel.h>
#include <drivetrain/error.h>
#include <drivetrain/mesh.h>
#include <drivetrain/toolkit/layers/decorated_layers.h>

namespace drivetrain {

// Routers whose tokens are those of one rank among several that share each sequence.
class RoutersOfSequences : public DecoratedLayers {
 public:
  // `group`: of these ranks, set before layers compute.
  RoutersOfSequences(std::shared_ptr<LayerFactory> inner, std::shared_ptr<const GroupPtr> group)
      : DecoratedLayers(std::move(inner)), group_(std::move(group)) {}

  std::shared_ptr<Router> router(const RouterSpec& spec) override {
    RouterSpec own = spec;
    own.sum_positions = [group = group_, others = spec.sum_positions](at::Tensor& sum) {
      (*group)->all_reduce(sum)->wait();
      if (others) others(sum);
    };
    return inner_->router(own);
  }

 private:
  const std::shared_ptr<const GroupPtr> group_;
};

// `Shared` is an Attention over the axis's ranks, with set_group(GroupPtr), called once before it computes.
template <class Shared>
class SequenceSharing : public ContextParallel {
 public:
  struct Options {
    int64_t size = 1;
  };

  void build(Builder& builder) override {
    if (size_ == 1) return;
    const int64_t index = builder.mesh.index(axis_);
    builder.wrap_attention(
        [&](std::shared_ptr<Attention> inner) { return attention_ = make_attention(std::move(inner), index); });
    builder.batch_cuts.push_back(make_cut(index));
    builder.layers = std::make_shared<RoutersOfSequences>(builder.layers, group_);
  }

  void attach(UnitList&) override {
    if (!attention_) return;
    *group_ = services_.mesh->group(axis_);
    attention_->set_group(*group_);
  }

 protected:
  SequenceSharing(const char* axis, const Options& options, const Services& services)
      : axis_(axis), size_(options.size), services_(services) {}

  static OptionTable size_table(const std::string& help) {
    return table<Options>().field("size", &Options::size, help).required().at_least(1);
  }

  // For `plan`. False where one rank has the whole sequence and there is nothing more to plan.
  bool claim(PlanContext& ctx, int place) const {
    ctx.claim_axis(axis_, size_, PlanContext::Reads::other_positions, place);
    if (size_ == 1) ctx.no_effect("size", "one rank has the whole sequence");
    return size_ > 1;
  }

  // For strategies whose ranks have equal pieces of a sequence, one after the other. In `plan`: refuses a length that
  // cannot be cut so, and names those that can.
  void plan_equal_pieces(PlanContext& ctx) const {
    if (!ctx.run().seq_length.known()) return;
    const int64_t S = ctx.run().seq_length, below = S - S % size_;
    if (below == S) return;
    ctx.refuse(concat("sequences of ", S, " positions cannot be cut into ", size_, " equal pieces; set seq_length to ",
                      below > 0 ? concat(below, " or ") : "", below + size_));
  }
  // For make_cut. `plugin`: "context_parallel/mine".
  Builder::SequenceCut equal_pieces(const std::string& plugin, int64_t index) const {
    return [plugin, index, ranks = size_](const std::vector<RowRange>& positions, const std::vector<int64_t>&) {
      int64_t count = 0;
      for (const RowRange& range : positions) count += range.count;
      if (count % ranks != 0)
        throw fail(ErrorCode::config, plugin, ": ", count, " positions cannot be cut into ", ranks,
                   " equal pieces; set seq_length to a multiple");
      return part_of(positions, ranks, index);
    };
  }

  // Called by `build` once each, where more than one rank shares a sequence. `index`: of this rank on the axis.
  virtual std::shared_ptr<Shared> make_attention(std::shared_ptr<Attention> inner, int64_t index) const = 0;
  virtual Builder::SequenceCut make_cut(int64_t index) const = 0;

  const std::string axis_;  // of the mesh
  const int64_t size_;      // ranks that share a sequence

 private:
  const Services& services_;
  std::shared_ptr<Shared> attention_;
  const std::shared_ptr<GroupPtr> group_ = std::make_shared<GroupPtr>();
};

}  // namespace drivetrain
