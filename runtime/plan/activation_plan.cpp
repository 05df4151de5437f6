#include "plan/activation_plan.h"

#include <algorithm>

#include <drivetrain/toolkit/recompute/recompute_blocks.h>

#include "checks/plugin_call.h"

namespace drivetrain {
namespace {

// Elements per token that every rank of a tensor-parallel group keeps, and those that are cut among them.
struct KeptPerToken {
  double whole = 0, cut = 0;
};

KeptPerToken kept_by(const PlannedRun& run, const Recompute* policy, const Unit& unit) {
  const ModelFacts& facts = run.plan.model;
  const std::string id = run.plan.id_of(Recompute::kKind);
  const auto keep = [&](const std::string& region) {
    return plugin_call({id, "keep", unit.name()}, [&] { return policy->keep({unit.name(), region}); });
  };
  if (policy && keep("") != Keep::all) return {facts.input_per_token, 0};
  KeptPerToken kept{facts.kept_whole_per_token, facts.kept_cut_per_token};
  if (!policy) return kept;
  for (const auto& region : facts.regions) {
    if (keep(region.name) == Keep::all) continue;
    kept.whole -= region.whole_per_token, kept.cut -= region.cut_per_token;
  }
  return kept;
}

// Positions of a sequence that this rank has inside of layers.
int64_t positions_inside(const RunPlan& plan) {
  int64_t sum = 0;
  for (const RowRange& range : plan.positions.batch) sum += range.count;
  return sum;
}

// A policy chooses among the blocks that it is shown; before the run is built nobody has shown it any.
void show_units(const PlannedRun& run) {
  if (!run.plugins.recompute) return;
  UnitList units = run.units;
  const std::string id = run.plan.id_of(Recompute::kKind);
  plugin_call({id, "attach"}, [&] { run.plugins.recompute->attach(units); });
}

// Of this rank's stage.
struct BlockBytes {
  double mean = 0, most = 0;
  bool recomputed = false;
};

BlockBytes block_bytes(const PlannedRun& run, double tokens_whole, double tokens_cut) {
  const auto bytes = [&](const KeptPerToken& kept) {
    return (kept.whole * tokens_whole + kept.cut * tokens_cut) *
           static_cast<double>(c10::elementSize(run.services->dtypes.param));
  };
  BlockBytes result;
  result.most = bytes({run.plan.model.kept_whole_per_token, run.plan.model.kept_cut_per_token});
  double sum = 0, blocks = 0;
  for (const UnitPtr& unit : run.units.units) {
    if (!BlockChoice::is_block(unit->name())) continue;
    const double own = bytes(kept_by(run, run.plugins.recompute.get(), *unit));
    result.recomputed |= own < result.most;
    sum += own, ++blocks;
  }
  result.mean = blocks > 0 ? sum / blocks : result.most;
  return result;
}

// The stage whose micro-batches in flight times blocks are most. One slot holds one chunk's share of a micro-batch.
struct Fullest {
  int64_t stage = 0, blocks = 0, slots = 0;
  double held = 0;  // blocks of micro-batches
};

Fullest fullest_stage(const RunPlan& plan) {
  Fullest fullest;
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
  const ModelFacts& facts = plan.model;
  if (facts.kept_whole_per_token + facts.kept_cut_per_token == 0 || plan.placement.empty() || !plan.run.training)
    return {};
  show_units(run);
  const int64_t inside = positions_inside(plan);
  const auto rows = static_cast<double>(plan.batch.micro_batch_size);
  const auto tensor = static_cast<double>(plan.mesh.ranks_of_kind("tensor_parallel"));
  const BlockBytes block = block_bytes(run, rows * static_cast<double>(plan.run.rank_positions),
                                       rows * static_cast<double>(inside) / tensor);
  const Fullest fullest = fullest_stage(plan);
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
