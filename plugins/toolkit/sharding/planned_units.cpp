// What a rank holds of a stage's units: buckets as they will be made, the gradients that are lent to backward passes
// and the values that are gathered at one time.
#include <drivetrain/toolkit/sharding/buckets.h>

#include <algorithm>
#include <map>
#include <span>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/dtype_name.h>
#include "state_sharing_plan.h"

namespace drivetrain::sharding {
namespace {

// ValueGathers without tensors: which buckets have all their values at one time.
class GatheredValues {
 public:
  GatheredValues(const ShardingOptions& options, const UnitList& units, const std::vector<BucketSizes>& buckets)
      : options_(options), buckets_(buckets), by_unit_(units.units.size()) {
    std::map<const Param*, size_t> home;
    for (size_t b = 0; b < buckets.size(); ++b)
      for (const ParamPtr& param : buckets[b].params) home[param.get()] = b;
    for (size_t u = 0; u < by_unit_.size(); ++u)
      for (const ParamPtr& param : units.units[u]->params()) {
        const size_t b = home.at(param.get());
        const bool listed = std::find(by_unit_[u].begin(), by_unit_[u].end(), b) != by_unit_[u].end();
        if (!buckets[b].resident && !listed) by_unit_[u].push_back(b);
      }
  }

  // Elements at the worst moment of a step; two micro-batches show what is kept between them.
  int64_t most() {
    const auto count = static_cast<int64_t>(by_unit_.size());
    for (int64_t micro = 0; micro < std::min<int64_t>(options_.micro_batches, 2); ++micro) {
      for (int64_t u = 0; u < count; ++u) visits_.push_back({u, Direction::forward});
      for (int64_t u = count; u-- > 0;) visits_.push_back({u, Direction::backward});
    }
    gathered_.assign(buckets_.size(), false);
    for (size_t v = 0; v < visits_.size(); ++v) {
      for (const size_t b : by_unit_[visits_[v].unit]) gather(b);
      prefetch(v);
      most_ = std::max(most_, live_);
      for (const size_t b : by_unit_[visits_[v].unit])
        if (!wanted_soon(b, v)) gathered_[b] = false, live_ -= buckets_[b].numel;
    }
    return most_;
  }

 private:
  struct PlannedVisit {
    int64_t unit;
    Direction direction;
  };

  void gather(size_t b) {
    if (gathered_[b]) return;
    gathered_[b] = true, live_ += buckets_[b].numel;
  }

  std::span<const PlannedVisit> ahead(size_t v) const { return std::span(visits_).subspan(v + 1); }

  void prefetch(size_t v) {
    int64_t elements = 0, units = 0;
    for (const PlannedVisit& coming : ahead(v)) {
      if (options_.prefetch_units > 0 && units++ == options_.prefetch_units) return;
      for (const size_t b : by_unit_[coming.unit]) {
        const auto& now = by_unit_[visits_[v].unit];
        if (std::find(now.begin(), now.end(), b) != now.end()) continue;
        if (options_.prefetch_units == 0 && elements >= options_.prefetch) return;
        elements += buckets_[b].numel;
        if (gathered_[b]) continue;
        if (live_ + buckets_[b].numel > options_.live) return;
        gather(b);
      }
    }
  }

  bool wanted_soon(size_t b, size_t v) const {
    if (live_ > options_.live) return false;
    const bool waits = !options_.release_after_forward && visits_[v].direction == Direction::forward;
    int64_t distance = 0;
    for (const PlannedVisit& coming : ahead(v)) {
      const auto& used = by_unit_[coming.unit];
      if (std::find(used.begin(), used.end(), b) != used.end()) return true;
      for (const size_t other : used) distance += buckets_[other].numel;
      if (!waits && distance > options_.reuse_distance) return false;
    }
    return false;
  }

  const ShardingOptions& options_;
  const std::vector<BucketSizes>& buckets_;
  std::vector<std::vector<size_t>> by_unit_;  // buckets that are not resident
  std::vector<PlannedVisit> visits_;
  std::vector<bool> gathered_;
  int64_t live_ = 0, most_ = 0;
};

// Elements of the buffers that GradSums lends, of one type: two of each size where one is summed beside the next.
double lent_elements(const ShardingOptions& options, const std::vector<BucketSizes>& buckets) {
  std::map<std::pair<int64_t, int64_t>, int64_t> buckets_of_size;
  for (const BucketSizes& b : buckets)
    if (b.trainable) ++buckets_of_size[{b.numel, b.shards}];
  double elements = 0;
  for (const auto& [size, count] : buckets_of_size) {
    const int64_t sums = count * (options.reduce_every == 1 ? options.micro_batches : 1);
    elements += static_cast<double>(size.first * (options.overlap && sums > 1 ? 2 : 1));
  }
  return elements;
}

}  // namespace
}  // namespace drivetrain::sharding

namespace drivetrain {

bool StateSharing::plan_units(PlanContext& ctx, const PlannedStage& stage) const {
  const ShardingOptions s = with_joined_axes(stage.mesh);
  const Dtypes& types = services_.dtypes;
  std::vector<sharding::BucketSizes> buckets = sharding::bucket_sizes(stage.units, stage.mesh, s), lent, converted;
  // Elements, by where they are: whole, in parts, in parts of gradients.
  double whole = 0, parts = 0, grads = 0, part_grads = 0, masters = 0, second = 0, updated = 0;
  const int64_t second_ranks = second_ranks_;
  for (sharding::BucketSizes& b : buckets) {
    const auto numel = static_cast<double>(b.numel), part = numel / static_cast<double>(b.shards);
    const bool once = stage.one_memory && b.shards > 1;
    if (once) b.resident = true;
    (b.resident && !once ? whole : parts) += b.resident && !once ? numel : part;
    if (!b.resident && second_ranks > 0) second += numel / static_cast<double>(second_ranks);
    if (!b.trainable) continue;
    updated += static_cast<double>(b.elements) / static_cast<double>(b.shards);
    const bool temporary = sharding::has_temporary_grads(s, b.shards);
    if (temporary) lent.push_back(b);
    if (!temporary) grads += numel;
    if (temporary || sharding::sums_several_times(s)) part_grads += part;
    if (types.reduce != types.grad && b.sums) converted.push_back(b);
    masters += part;
  }
  const auto hold = [&](MemoryClass of, const std::string& what, double elements, at::ScalarType type) {
    if (elements > 0)
      ctx.memory(of, concat(what, ", ", dtype_name(type)), elements * static_cast<double>(c10::elementSize(type)));
  };
  const auto hold_on_host = [&](MemoryClass of, const std::string& what, double elements, at::ScalarType type) {
    if (elements > 0)
      ctx.host_memory(of, concat(what, ", ", dtype_name(type)), elements * static_cast<double>(c10::elementSize(type)));
  };
  const auto share = [&](const char* what) {
    return shard_ranks_ > 1 ? concat(what, ", 1/", shard_ranks_) : std::string(what);
  };
  const bool on_host = holds_values_on_host();
  hold(MemoryClass::parameters, "parameters", whole, types.param);
  if (on_host)
    hold_on_host(MemoryClass::parameters, share("parameters on the host"), parts, types.param);
  else
    hold(MemoryClass::parameters, share("parameters"), parts, types.param);
  hold(MemoryClass::buffers, "second copy for backward", second, types.param);
  hold(MemoryClass::gradients, "gradients", grads, types.grad);
  hold(MemoryClass::gradients, share(grads > 0 ? "sums of gradients" : "gradients"), part_grads, types.grad);
  if (s.offload_state) {
    hold_on_host(MemoryClass::gradients, share("gradients on the host"), masters, types.grad);
    hold_on_host(MemoryClass::optimizer, share("masters on the host"), masters, types.master);
  } else if (types.master != types.param || on_host) {
    hold(MemoryClass::optimizer, share("masters"), masters, types.master);
  }
  plan_updates(ctx, updated);
  hold(MemoryClass::buffers, "gradients lent to backward passes", sharding::lent_elements(s, lent), types.grad);
  hold(MemoryClass::buffers, "gradients in the type of sums", sharding::lent_elements(s, converted), types.reduce);
  hold(MemoryClass::buffers, "gathered units",
       static_cast<double>(sharding::GatheredValues(s, stage.units, buckets).most()), types.param);
  return true;
}

}  // namespace drivetrain
