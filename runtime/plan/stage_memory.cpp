#include "plan/stage_memory.h"

#include <algorithm>

#include <drivetrain/planned_memory.h>

#include "plan/activation_plan.h"
#include "plugin_calls/plugin_call.h"

namespace drivetrain {
namespace {

struct StageUnits {
  UnitList units;
  std::vector<ChunkUnits> chunks;
};

StageUnits units_of(const RunPlan& plan, int64_t stage, const std::vector<UnitPtr>& chain) {
  std::vector<const PlacedPiece*> pieces(static_cast<size_t>(plan.schedule.chunks));
  for (const PlacedPiece& piece : plan.placement)
    if (piece.stage == stage) pieces.at(static_cast<size_t>(piece.chunk)) = &piece;
  StageUnits result;
  std::vector<UnitPtr>& units = result.units.units;
  for (const PlacedPiece* piece : pieces) {
    const auto first = static_cast<int64_t>(units.size());
    units.insert(units.end(), chain.begin() + piece->first, chain.begin() + piece->last);
    result.chunks.push_back({first, static_cast<int64_t>(units.size())});
  }
  return result;
}

// Of a rank of the stage, where RunFacts speak of the fullest one.
RunFacts facts_of(const RunPlan& plan, int64_t stage) {
  RunFacts facts = plan.run;
  const int64_t chunks = plan.schedule.chunks, slots = plan.schedule.slots.at(static_cast<size_t>(stage));
  facts.rank_share = static_cast<double>(plan.parameters_by_stage().at(stage)) /
                     static_cast<double>(std::max<int64_t>(plan.model.parameters, 1));
  if (facts.rank_layers.known()) facts.rank_layers = plan.blocks_by_stage().at(stage);
  facts.micro_batches_in_flight = (slots + chunks - 1) / chunks;
  return facts;
}

bool has_one_memory(const PreparedRun& run) {
  const auto* says = dynamic_cast<const HasOneMemory*>(run.plugins.communicator.get());
  return says && says->has_one_memory();
}

double host_bytes_per_update(const PreparedRun& run) {
  const auto* takes = dynamic_cast<const TakesHostMemory*>(run.plugins.optimizer.get());
  if (!takes) return 0;
  return plugin_call({run.plan.id_of(Optimizer::kKind), "host_bytes_per_element"},
                     [&] { return takes->host_bytes_per_element(run.plan.dtypes.types.param); });
}

StageMemory ask(const PreparedRun& run, const NamedPlugins& plugins, int64_t stage, const StageUnits& own) {
  PlanRecord record(run.plan.model, facts_of(run.plan, stage));
  std::vector<std::string> tell_by_units;
  for (const auto& [id, plugin] : plugins) {
    record.set_plugin(id);
    plugin_call({id, "plan"}, [&] { plugin->plan(record); });
    if (dynamic_cast<const HoldsUnits*>(plugin.get())) tell_by_units.push_back(id);
  }
  StageMemory memory;
  for (const PlanRecord::Memory& part : record.memories())
    if (std::find(tell_by_units.begin(), tell_by_units.end(), part.by) == tell_by_units.end())
      memory.parts.push_back(part);
  PlanRecord by_units(run.plan.model, facts_of(run.plan, stage));
  bool any_updates = false;
  for (const auto& [id, plugin] : plugins) {
    const auto* holds = dynamic_cast<const HoldsUnits*>(plugin.get());
    if (!holds) continue;
    by_units.set_plugin(id);
    plugin_call({id, "plan_units"}, [&] { holds->plan_units(by_units, {own.units, *run.mesh, has_one_memory(run)}); });
    any_updates = true;
  }
  memory.parts.insert(memory.parts.end(), by_units.memories().begin(), by_units.memories().end());
  const PlanRecord::Update update = (any_updates ? by_units : record).update();
  memory.updated_elements = update.elements;
  if (update.to_device) memory.host_bytes_per_update = host_bytes_per_update(run);
  return memory;
}

}  // namespace

void plan_stage_memories(PreparedRun& run, const NamedPlugins& plugins, const std::vector<UnitPtr>& chain) {
  RunPlan& plan = run.plan;
  std::vector<int64_t> stages;
  for (int64_t stage = 0; stage < plan.schedule.stages; ++stage)
    if (stage != run.stage()) stages.push_back(stage);
  stages.push_back(run.stage());
  plan.stage_memories.assign(stages.size(), {});
  const std::string policy = plan.id_of(Recompute::kKind);
  for (const int64_t stage : stages) {
    const StageUnits own = units_of(plan, stage, chain);
    if (run.plugins.recompute) plugin_call({policy, "choose"}, [&] { run.plugins.recompute->choose(own.units); });
    StageMemory& memory = plan.stage_memories[static_cast<size_t>(stage)] = ask(run, plugins, stage, own);
    memory.activations = plan_activations(run, stage, own.units, own.chunks);
  }
}

}  // namespace drivetrain
