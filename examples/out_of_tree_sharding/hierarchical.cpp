// Sharding of everything, as in ZeRO stage 3, with hierarchical gathers: the parts of a host's ranks come together on
// the host first, then whole hosts exchange what they have, so that a slow network is crossed by large messages only.
//
// Source: Wang et al. 2023, "ZeRO++: Extremely Efficient Collective Communication for Giant Model Training", section 3
// (the idea; theirs keeps a second copy instead).
#include <drivetrain/mesh.h>
#include <drivetrain/toolkit/sharding/grad_sums.h>
#include <drivetrain/toolkit/sharding/value_gathers.h>

namespace {

using namespace drivetrain;

// Parts lie in the order of ranks, a host's beside each other, so both steps write where the values belong.
class HierarchicalGathers : public sharding::ValueGathers {
 public:
  HierarchicalGathers(const ShardingOptions& options, const UnitList& units, const sharding::Buckets& buckets,
                      const Mesh& mesh)
      : ValueGathers(options, units, buckets), host_(mesh.group("dp")), hosts_(mesh.group("replica")) {}

 protected:
  WorkPtr gather(sharding::Bucket& bucket, Direction) override {
    const FlatUnit& flat = *bucket.flat;
    const int64_t own = flat.part_numel() * host_->size();
    const at::Tensor of_host = flat.values().narrow(0, hosts_->rank() * own, own);
    host_->all_gather(of_host, flat.part_values())->wait();
    return hosts_->all_gather(flat.values(), of_host);
  }

 private:
  const GroupPtr host_, hosts_;
};

class Hierarchical : public StateSharing {
 public:
  struct Options {
    int64_t host_ranks = 2;
  };
  static OptionTable options() {
    return table<Options>().field("host_ranks", &Options::host_ranks, "ranks of a host").at_least(1);
  }
  Hierarchical(const Options& options, const Services& services) : StateSharing(services), section_(options) {}

  void plan(PlanContext& ctx) override {
    options_.shard_grads = options_.shard_values = true;
    share_over_nested_groups(ctx, "host_ranks", section_.host_ranks);
    choose_sums(ctx, {}, 1);
    plan_gathers(ctx);
    plan_memory(ctx);
  }

  void before_forward(const Visit& visit, StepContext& ctx) override { values().use(visit, ctx); }
  void before_backward(const Visit& visit, StepContext& ctx) override { values().use(visit, ctx); }
  void after_forward(const Visit& visit, StepContext& ctx) override { values().done(visit, ctx); }
  void values_done(const Visit& visit, StepContext& ctx) override { values().done(visit, ctx); }
  void before_grads(const Visit& visit, StepContext&) override { grads().make_room(visit); }
  void after_backward(const Visit& visit, StepContext&) override { grads().begin_complete(visit); }
  void after_update(Trainables& chunk, StepContext&) override { values().updated(chunk); }

 protected:
  std::unique_ptr<sharding::ValueGathers> make_value_gathers(const UnitList& units,
                                                             const sharding::Buckets& buckets) const override {
    return std::make_unique<HierarchicalGathers>(options_, units, buckets, *services_.mesh);
  }

 private:
  const Options section_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::DataParallel, "hierarchical", Hierarchical)
