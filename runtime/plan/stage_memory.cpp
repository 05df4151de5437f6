#include "plan/stage_memory.h"

#include <c10/util/accumulate.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "plan/activation_plan.h"
#include "plan/place_model.h"
#include "plugin_calls/plugin_call.h"

namespace drivetrain {
namespace {

// Of a rank of the stage, where RunFacts speak of the fullest one.
RunFacts facts_of(const RunPlan& plan, int64_t stage) {
  RunFacts facts = plan.run;
  const int64_t chunks = plan.schedule.chunks, slots = plan.schedule.slots.at(static_cast<size_t>(stage));
  facts.rank_share = plan.share_of_model(plan.by_stage(&PlacedPiece::parameters).at(stage));
  facts.rank_trained = plan.share_of_model(plan.by_stage(&PlacedPiece::trained).at(stage));
  if (facts.rank_layers.known()) facts.rank_layers = plan.by_stage(&PlacedPiece::blocks).at(stage);
  facts.micro_batches_in_flight = (slots + chunks - 1) / chunks;
  return facts;
}

// Bytes of the optimizer's state per element of each parameter that it trains; `whole`: of the whole model, once.
using StateBytes = std::map<const Param*, double>;

StateBytes state_bytes_of(const PreparedRun& run, double& whole) {
  StateBytes bytes;
  const std::string id = run.plan.id_of(Optimizer::kKind);
  for (const ParamPtr& param : run.model_params) {
    if (!run.plugins.optimizer || !param->trainable) continue;
    const double one = plugin_call({id, "state_bytes_per_element", param->name},
                                   [&] { return run.plugins.optimizer->state_bytes_per_element(*param); });
    bytes[param.get()] = one;
    whole += one * static_cast<double>(c10::multiply_integers(param->layout.global_shape));
  }
  return bytes;
}

// Shares of a stage that storage owners cut have the mean of the stage.
double mean_state(const PreparedRun& run, const UnitList& units, const StateBytes& bytes) {
  double sum = 0, elements = 0;
  for (const ParamPtr& param : units.all()) {
    if (!bytes.contains(param.get())) continue;
    const auto numel = static_cast<double>(param->layout.local_numel(*run.mesh));
    sum += bytes.at(param.get()) * numel, elements += numel;
  }
  return elements > 0 ? sum / elements : 0;
}

// The runtime's buffer of gradients that are partial sums over several ranks (step/grad_sums.h). Storage owners have
// cut them like the rest.
double partial_gradient_bytes(const PreparedRun& run, const UnitList& units, double updated_elements) {
  double trained = 0, partial = 0;
  for (const ParamPtr& param : units.all()) {
    if (!param->trainable) continue;
    const auto elements = static_cast<double>(param->layout.local_numel(*run.mesh));
    trained += elements;
    const std::vector<std::string>& axes = param->layout.partial_over;
    if (std::any_of(axes.begin(), axes.end(), [&](const std::string& axis) { return run.mesh->size(axis) > 1; }))
      partial += elements;
  }
  const double width = run.plan.dtypes.types.grad == at::kDouble ? 8 : 4;
  return trained > 0 ? width * partial * std::min(1.0, updated_elements / trained) : 0;
}

// What plugins say of the update. Traffic counts of the rank's own stage.
void ask_of_update(PreparedRun& run, const NamedPlugins& plugins, int64_t stage, const PlannedUpdate& update,
                   PlanRecord& said, UpdateWork& sum) {
  for (const auto& [id, plugin] : plugins) {
    const auto* const more = dynamic_cast<const UpdatePlan*>(plugin.get());
    if (!more) continue;
    said.set_plugin(id);
    const UpdateWork work = plugin_call({id, "plan_update"}, [&] { return more->plan_update(said, update); });
    sum.products.insert(sum.products.end(), work.products.begin(), work.products.end());
    sum.passed_bytes += work.passed_bytes;
  }
  if (stage != run.stage()) return;
  run.plan.traffics.insert(run.plan.traffics.end(), said.traffics().begin(), said.traffics().end());
}

StageMemory ask(PreparedRun& run, const NamedPlugins& plugins, int64_t stage, const StageUnits& own) {
  PlanRecord record(run.plan.model, facts_of(run.plan, stage)), by_units = record;
  for (const auto& [id, plugin] : plugins) {
    record.set_plugin(id);
    plugin_call({id, "plan"}, [&] { plugin->plan(record); });
  }
  const Communicator* const communicator = run.plugins.communicator.get();
  const PlannedStage planned{own.units, *run.mesh, communicator && communicator->has_one_memory()};
  std::set<std::string> told_by_units;
  for (const auto& [id, strategy] : run.plugins.strategies) {
    by_units.set_plugin(id);
    if (plugin_call({id, "plan_units"}, [&] { return strategy->plan_units(by_units, planned); }))
      told_by_units.insert(id);
  }
  StageMemory memory;
  const PlanRecord::Update update = (told_by_units.empty() ? record : by_units).update();
  memory.updated_elements = update.elements;
  if (run.plan.run.training)
    ask_of_update(run, plugins, stage, {planned, update.elements, update.on_host}, by_units, memory.update);
  for (const PlanRecord::Memory& part : record.memories())
    if (!told_by_units.contains(part.by)) memory.parts.push_back(part);
  memory.parts.insert(memory.parts.end(), by_units.memories().begin(), by_units.memories().end());
  if (const double bytes = partial_gradient_bytes(run, own.units, update.elements); bytes > 0)
    memory.parts.push_back({"runtime", "gradients that are partial sums", bytes, MemoryClass::buffers});
  if (Optimizer* const optimizer = run.plugins.optimizer.get(); optimizer && update.to_device)
    memory.host_bytes_per_update = plugin_call({run.plan.id_of(Optimizer::kKind), "host_bytes_per_element"}, [&] {
      return optimizer->host_bytes_per_element(run.plan.dtypes.types.param);
    });
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
  plan.optimizer_state_bytes = 0;
  const StateBytes state_bytes = state_bytes_of(run, plan.optimizer_state_bytes);
  for (const int64_t stage : stages) {
    const StageUnits own = units_of(plan, stage, chain);
    if (Recompute* const policy = run.plugins.recompute.get())
      plugin_call({plan.id_of(Recompute::kKind), "choose"}, [&] { policy->choose(own.units); });
    StageMemory& memory = plan.stage_memories[static_cast<size_t>(stage)] = ask(run, plugins, stage, own);
    plan.optimizer_bytes_per_element = memory.state_bytes_per_element = mean_state(run, own.units, state_bytes);
    memory.activations = plan_activations(run, stage, own.units, own.chunks);
  }
}

}  // namespace drivetrain
