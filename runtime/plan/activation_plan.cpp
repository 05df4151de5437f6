#include "plan/activation_plan.h"

#include <algorithm>
#include <optional>

#include "checks/plugin_call.h"

namespace drivetrain {
namespace {

// Of one token, by what the recompute policy keeps of the unit.
KeptElements kept_by(const PlannedRun& run, const Unit& unit, const UnitKeeps& keeps) {
  const Recompute* const policy = run.plugins.recompute.get();
  if (!policy) return keeps.all;
  const std::string id = run.plan.id_of(Recompute::kKind);
  const auto keep = [&](const std::string& region) {
    return plugin_call({id, "keep", unit.name()}, [&] { return policy->keep({unit.name(), region}); });
  };
  if (keep("") != Keep::all) return keeps.inputs;
  KeptElements kept = keeps.all;
  for (const UnitKeeps::Region& region : keeps.regions) {
    if (keep(region.name) == Keep::all) continue;
    kept.whole -= region.freed.whole, kept.shared -= region.freed.shared;
  }
  return kept;
}

// Positions of a sequence that this rank has inside of layers.
int64_t positions_inside(const RunPlan& plan) {
  int64_t sum = 0;
  for (const RowRange& range : plan.positions.batch) sum += range.count;
  return sum;
}

// Of this rank's stage.
struct BlockBytes {
  double mean = 0, most = 0;
  bool recomputed = false;
};

// Nothing if there is no block, or one that does not say what it keeps.
std::optional<BlockBytes> block_bytes(const PlannedRun& run, double tokens_whole, double tokens_shared) {
  const auto bytes = [&](const KeptElements& kept) {
    return (kept.whole * tokens_whole + kept.shared * tokens_shared) *
           static_cast<double>(c10::elementSize(run.services->dtypes.param));
  };
  const std::string model = run.plan.id_of(Model::kKind);
  BlockBytes result;
  double sum = 0, blocks = 0;
  for (const UnitPtr& unit : run.units.units) {
    if (!unit->is_block()) continue;
    const auto keeps = plugin_call({model, "keeps", unit->name()}, [&] { return unit->keeps(); });
    if (!keeps) return std::nullopt;
    const double all = bytes(keeps->all), own = bytes(kept_by(run, *unit, *keeps));
    result.most = std::max(result.most, all);
    result.recomputed |= own < all;
    sum += own, ++blocks;
  }
  if (blocks == 0) return std::nullopt;
  result.mean = sum / blocks;
  return result;
}

// The stage whose micro-batches in flight times blocks are most. One slot holds one chunk's share of a micro-batch.
struct FullestStage {
  int64_t stage = 0, blocks = 0, slots = 0;
  double held = 0;  // blocks of micro-batches
};

FullestStage fullest_stage(const RunPlan& plan) {
  FullestStage fullest;
  for (const auto& [stage, count] : plan.blocks_by_stage()) {
    const int64_t slots = plan.schedule.slots.at(stage);
    const double held = static_cast<double>(count * slots) / static_cast<double>(plan.schedule.chunks);
    if (held > fullest.held) fullest = {stage, count, slots, held};
  }
  return fullest;
}

}  // namespace

ActivationPlan plan_activations(const PlannedRun& run) {
  const RunPlan& plan = run.plan;
  if (plan.placement.empty() || !plan.run.training) return {};
  const int64_t inside = positions_inside(plan);
  const auto rows = static_cast<double>(plan.batch.micro_batch_size);
  const auto layer_ranks = static_cast<double>(plan.run.layer_ranks.value());
  const auto said = block_bytes(run, rows * static_cast<double>(plan.run.rank_positions.value()),
                                rows * static_cast<double>(inside) / layer_ranks);
  if (!said) return {};
  const BlockBytes& block = *said;
  const FullestStage fullest = fullest_stage(plan);
  ActivationPlan planned;
  planned.bytes = fullest.held * block.mean + (block.recomputed ? block.most : 0);
  const int64_t stages = plan.schedule.stages, chunks = plan.schedule.chunks;
  const std::string stage = stages > 1 ? concat(" of stage ", fullest.stage) : "";
  // A policy chooses per stage; of another one this rank knows no units.
  const bool other = block.recomputed && stages > 1 && run.stage() != fullest.stage;
  const std::string share = chunks > 1 ? concat(" in ", chunks, " chunks") : "";
  planned.source =
      concat(plan.id_of(Model::kKind), ": ", fullest.slots, " in flight x ", fullest.blocks, " blocks", stage, share,
             " x ", plan.batch.micro_batch_size * inside, " tokens", block.recomputed ? ", one of them in full" : "",
             other ? concat(", recomputed as on stage ", run.stage()) : std::string());
  return planned;
}

}  // namespace drivetrain
