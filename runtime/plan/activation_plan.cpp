#include "plan/activation_plan.h"

#include <algorithm>

#include <drivetrain/toolkit/recompute/recompute_blocks.h>

#include "checks/plugin_call.h"
#include "step/step_state.h"

namespace drivetrain {
namespace {

// Elements per token that every rank of a tensor-parallel group keeps, and those that are cut among them.
struct KeptPerToken {
  double whole = 0, cut = 0;
};

KeptPerToken kept_by(const Composition& run, const Recompute* policy, const Unit& unit) {
  const ModelFacts& facts = run.facts;
  const std::string id = run.id_of(Recompute::kKind);
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
int64_t positions_inside(const Composition& run) {
  int64_t sum = 0;
  for (const RowRange& range : apply_cuts(run.batch_cuts, {{0, run.run.seq_length}})) sum += range.count;
  return sum;
}

// A policy chooses among the blocks that it is shown; where the run is not built yet, nobody has.
void show_units(const Composition& run) {
  if (!run.recompute || !run.chunks.empty()) return;
  UnitList units = run.units;
  const std::string id = run.id_of(Recompute::kKind);
  plugin_call({id, "attach"}, [&] { run.recompute->attach(units); });
}

// Of this rank's stage.
struct BlockBytes {
  double mean = 0, most = 0;
  bool recomputed = false;
};

BlockBytes block_bytes(const Composition& run, double tokens_whole, double tokens_cut) {
  const auto bytes = [&](const KeptPerToken& kept) {
    return (kept.whole * tokens_whole + kept.cut * tokens_cut) *
           static_cast<double>(c10::elementSize(run.services->dtypes.param));
  };
  BlockBytes result;
  result.most = bytes({run.facts.kept_whole_per_token, run.facts.kept_cut_per_token});
  double sum = 0, blocks = 0;
  for (const UnitPtr& unit : run.units.units) {
    if (!BlockChoice::is_block(unit->name())) continue;
    const double own = bytes(kept_by(run, run.recompute.get(), *unit));
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

Fullest fullest_stage(const Composition& run) {
  Fullest fullest;
  for (const auto& [stage, count] : blocks_by_stage(run)) {
    const int64_t slots = run.schedule->slots(stage, run.batch.accumulation);
    const double held = static_cast<double>(count * slots) / static_cast<double>(run.schedule->chunks());
    if (held > fullest.held) fullest = {stage, count, slots, held};
  }
  return fullest;
}

std::string model_id(const Composition& run) {
  for (const ChosenPlugin& plugin : run.chosen)
    if (plugin.kind() == Model::kKind) return plugin.id();
  return Model::kKind;
}

}  // namespace

PlannedActivations planned_activations(const Composition& run) {
  const ModelFacts& facts = run.facts;
  if (facts.kept_whole_per_token + facts.kept_cut_per_token == 0 || run.placement.empty() || !run.run.training)
    return {};
  show_units(run);
  const int64_t inside = positions_inside(run);
  const auto rows = static_cast<double>(run.batch.micro_batch_size);
  const auto tensor = static_cast<double>(run.mesh_plan.ranks_of_kind("tensor_parallel"));
  const BlockBytes block =
      block_bytes(run, rows * static_cast<double>(run.run.rank_positions), rows * static_cast<double>(inside) / tensor);
  const Fullest fullest = fullest_stage(run);
  PlannedActivations planned;
  planned.bytes = fullest.held * block.mean + (block.recomputed ? block.most : 0);
  const int64_t chunks = run.schedule->chunks();
  const std::string stage = run.stages() > 1 ? concat(" of stage ", fullest.stage) : "";
  // A policy chooses per stage; of another one this rank knows no units.
  const bool other = block.recomputed && run.stages() > 1 && run.stage() != fullest.stage;
  const std::string share = chunks > 1 ? concat(" in ", chunks, " chunks") : "";
  planned.source =
      concat(model_id(run), ": ", fullest.slots, " in flight x ", fullest.blocks, " blocks", stage, share, " x ",
             run.batch.micro_batch_size * inside, " tokens", block.recomputed ? ", one of them in full" : "",
             other ? concat(", recomputed as on stage ", run.stage()) : std::string());
  return planned;
}

}  // namespace drivetrain
