#include <drivetrain/toolkit/sharding/state_sharing.h>

#include <algorithm>
#include <typeinfo>

#include <drivetrain/toolkit/sharding/grad_sums.h>
#include <drivetrain/toolkit/sharding/value_gathers.h>

namespace drivetrain {

StateSharing::StateSharing(const Services& services) : services_(services) {}
StateSharing::~StateSharing() = default;

// Parts of one sequence hold copies: they share the state where all ranks do,
// else their gradients are summed as replicas' are.
ShardingOptions StateSharing::with_joined_axes(const Mesh& mesh) const {
  ShardingOptions s = options_;
  const auto names = [](const std::vector<std::string>& list, const std::string& axis) {
    return std::find(list.begin(), list.end(), axis) != list.end();
  };
  std::vector<std::string>& joined = !s.shard_axes.empty() && s.replica_axes.empty() ? s.shard_axes : s.replica_axes;
  for (const Axis& axis : mesh.axes())
    if (axis.joins_gradients && axis.size > 1 && !names(s.shard_axes, axis.name) && !names(s.replica_axes, axis.name))
      joined.push_back(axis.name);
  return s;
}

void StateSharing::attach(UnitList& units) {
  options_ = with_joined_axes(*services_.mesh);
  options_.gather_late = options_.overlap && (options_.gather_late || services_.recorded);
  buckets_ = sharding::make_buckets(units, services_, options_);
  values_ = make_value_gathers(units, buckets_);
  const sharding::ValueGathers& made = *values_;
  const bool shared = std::any_of(buckets_.begin(), buckets_.end(),
                                  [](const auto& bucket) { return bucket->groups.shard->size() > 1; });
  if (shared && typeid(made) != typeid(sharding::ValueGathers) && !made.any_sharded() && services_.rank == 0)
    services_.log.warning(
        "the sharding strategy has gathers of its own, which are never called: all values are always there, as they "
        "live "
        "once for the ranks of a host (\"share\": false of the communicator ends that) or are not sharded");
  grads_ = std::make_unique<sharding::GradSums>(options_, services_.dtypes, services_.device, units, buckets_);
}

std::unique_ptr<sharding::ValueGathers> StateSharing::make_value_gathers(const UnitList& units,
                                                                         const sharding::Buckets& buckets) const {
  return std::make_unique<sharding::ValueGathers>(options_, units, buckets);
}

void StateSharing::step_begin(StepContext&) {
  grads_->step_begin();
  values_->step_begin();
}
void StateSharing::flush_grads(StepContext&) { grads_->flush(); }

std::vector<Trainables> StateSharing::trainables() { return pieces(true); }
std::vector<Trainables> StateSharing::frozen() { return pieces(false); }

std::vector<Trainables> StateSharing::pieces(bool trainable) const {
  std::vector<Trainables> all;
  for (const auto& bucket : buckets_)
    if (bucket->trainable == trainable)
      all.insert(all.end(), bucket->flat->pieces().begin(), bucket->flat->pieces().end());
  return all;
}

}  // namespace drivetrain
