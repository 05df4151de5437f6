#include "plan/place_model.h"

#include <algorithm>
#include <limits>
#include <set>

#include <drivetrain/toolkit/layers/plain_layers.h>
#include <drivetrain/toolkit/pipeline/timeline.h>
#include "data/sequence_cuts.h"
#include "plan/guarded_attention.h"
#include "plan/guarded_layers.h"
#include "plugin_calls/plugin_call.h"

namespace drivetrain {
namespace {

// Where the pieces begin. The schedule's word is checked: it may be anybody's.
std::vector<int64_t> cuts_of(const PreparedRun& run, const std::vector<UnitPtr>& chain,
                             const std::vector<double>& costs, int64_t pieces) {
  const auto units = static_cast<int64_t>(chain.size());
  if (pieces > units)
    throw fail(ErrorCode::config, "asks for ", run.plan.schedule.stages, " stages of ", run.plan.schedule.chunks, " = ",
               pieces, " pieces, the model's chain has ", units, " units (", chain.front()->name(), " to ",
               chain.back()->name(), "). Use fewer stages or chunks, or more layers");
  const std::vector<int64_t> cuts = run.plugins.schedule->partition(costs);
  const bool fits = static_cast<int64_t>(cuts.size()) == pieces && cuts.front() == 0 && cuts.back() < units &&
                    std::adjacent_find(cuts.begin(), cuts.end(), std::greater_equal<>()) == cuts.end();
  if (!fits)
    throw fail(ErrorCode::plugin, "its partition of ", units, " units into ", pieces, " pieces does not ascend from 0");
  return cuts;
}

std::vector<double> costs_of(const PreparedRun& run, const std::vector<UnitPtr>& chain) {
  const std::string model = run.plan.id_of(Model::kKind);
  std::vector<double> costs;
  for (const UnitPtr& unit : chain)
    costs.push_back(plugin_call({model, "cost", unit->name()}, [&] { return run.plugins.model->cost(*unit); }));
  return costs;
}

// Their number, before it is known that it makes sense.
SchedulePlan pieces_of(const Schedule& schedule) {
  SchedulePlan plan;
  plan.stages = schedule.stages(), plan.chunks = schedule.chunks();
  return plan;
}

std::vector<PlacedPiece> place_pieces(const PreparedRun& run, const std::vector<UnitPtr>& chain) {
  const int64_t stages = run.plan.schedule.stages, chunks = run.plan.schedule.chunks, pieces = stages * chunks;
  if (stages < 1 || chunks < 1)
    throw fail(ErrorCode::plugin, "has ", stages, " stages of ", chunks, " chunks; wanted one or more of each");
  const std::vector<double> costs = costs_of(run, chain);
  const std::vector<int64_t> cuts = cuts_of(run, chain, costs, pieces);
  std::vector<PlacedPiece> placed(pieces);
  for (int64_t stage = 0; stage < stages; ++stage)
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const int64_t index = run.plugins.schedule->piece(stage, chunk);
      if (index < 0 || index >= pieces)
        throw fail(ErrorCode::plugin, "puts piece ", index, " of ", pieces, " on chunk ", chunk, " of stage ", stage);
      PlacedPiece& piece = placed[index];
      if (piece.last > 0)
        throw fail(ErrorCode::plugin, "puts piece ", index, " on chunk ", chunk, " of stage ", stage, " and on chunk ",
                   piece.chunk, " of stage ", piece.stage);
      piece.stage = stage, piece.chunk = chunk;
      piece.first = cuts[index], piece.last = index + 1 < pieces ? cuts[index + 1] : static_cast<int64_t>(chain.size());
      piece.first_unit = chain[piece.first]->name(), piece.last_unit = chain[piece.last - 1]->name();
      for (int64_t u = piece.first; u < piece.last; ++u) piece.cost += costs[u], piece.blocks += chain[u]->is_block();
    }
  return placed;
}

// What each stage computes with, a parameter once per stage.
void count_parameters(PreparedRun& run, const std::vector<UnitPtr>& chain) {
  std::map<const Param*, std::set<int64_t>> stages;
  for (PlacedPiece& piece : run.plan.placement)
    for (int64_t u = piece.first; u < piece.last; ++u)
      for (const ParamPtr& param : chain[u]->params())
        if (stages[param.get()].insert(piece.stage).second) {
          const int64_t held = param->layout.local_numel(*run.mesh);
          piece.parameters += held, piece.trained += param->trainable ? held : 0;
        }
  run.plan.model.parameters = 0;  // its facts were told before it was built: adapters of fused layers are a guess there
  for (const ParamPtr& param : run.model_params) {
    run.plan.model.parameters += param->layout.global_numel();
    const std::set<int64_t>& users = stages[param.get()];
    param->tied_over_stages = users.size() > 1;
    if (param->tied_over_stages) run.plan.tied_stages[param->name] = {users.begin(), users.end()};
  }
}

void plan_slots(RunPlan& plan, const Schedule& schedule) {
  constexpr int64_t kMost = std::numeric_limits<decltype(Instr::slot)>::max();
  for (int64_t stage = 0; stage < plan.schedule.stages; ++stage) {
    const int64_t slots = schedule.slots(stage, plan.batch.accumulation);
    if (slots < 1 || slots > kMost)
      throw fail(ErrorCode::plugin, "uses ", slots, " slots in stage ", stage, "; wanted 1 to ", kMost);
    plan.schedule.slots.push_back(slots);
  }
}

// The programs of all stages together: stages that wait for each other would show as a peer that is late. Those of very
// long steps are looked at stage by stage only, by the executor.
void check_programs(const RunPlan& plan, const Schedule& schedule) {
  const int64_t micro_batches = plan.batch.accumulation;
  if (plan.schedule.stages * plan.schedule.chunks * micro_batches > kMostTimelineBoxes) return;
  for (const Pass pass : {Pass::train, Pass::forward_only}) simulate(schedule, micro_batches, pass);
}

void plan_positions(PreparedRun& run) {
  PositionPlan& positions = run.plan.positions;
  if (!run.plan.run.seq_length.known()) return;  // nothing is trained
  positions.batch = apply_cuts(run.batch_cuts, {{0, run.plan.run.seq_length}});
  positions.activations = apply_cuts(run.activation_cuts, positions.batch);
}

// What plugins want to know about the fullest rank, for their figures.
void count_fullest_rank(RunPlan& plan) {
  const auto largest = [](const std::map<int64_t, int64_t>& by_stage) {
    int64_t most = 0;
    for (const auto& [stage, value] : by_stage) most = std::max(most, value);
    return most;
  };
  int64_t slots = 1;
  for (const int64_t of_stage : plan.schedule.slots) slots = std::max(slots, of_stage);
  plan.run.rank_share = plan.share_of_model(largest(plan.by_stage(&PlacedPiece::parameters)));
  plan.run.rank_trained = plan.share_of_model(largest(plan.by_stage(&PlacedPiece::trained)));
  // Of a model that names no blocks, its facts alone are known.
  if (const int64_t layers = largest(plan.by_stage(&PlacedPiece::blocks)); layers > 0) plan.run.rank_layers = layers;
  if (plan.run.seq_length.known()) {
    int64_t positions = 0;
    for (const RowRange& range : plan.positions.activations) positions += range.count;
    plan.run.rank_positions = positions;
  }
  plan.run.micro_batches_in_flight = (slots + plan.schedule.chunks - 1) / plan.schedule.chunks;
}

// Every strategy finds the factory of the one before as others may not go around it. Returns the outermost.
std::shared_ptr<GuardedLayers> build_strategies(const Strategies& strategies, Builder& builder) {
  auto layers = std::make_shared<GuardedLayers>("the runtime", make_plain_layers(builder.attention()), nullptr);
  builder.layers = layers;
  for (auto it = strategies.rbegin(); it != strategies.rend(); ++it) {  // innermost first
    const PluginCall call{it->id, "build"};
    plugin_call(call, [&] {
      it->strategy->build(builder);
      if (!builder.layers) throw fail(ErrorCode::plugin, "left no layer factory: Builder::layers is null");
    });
    if (builder.layers == layers) continue;
    layers = std::make_shared<GuardedLayers>(it->id, builder.layers, layers);
    builder.layers = layers;
  }
  return layers;
}

}  // namespace

StageUnits units_of(const RunPlan& plan, int64_t stage, const std::vector<UnitPtr>& chain) {
  std::vector<const PlacedPiece*> pieces(plan.schedule.chunks);
  for (const PlacedPiece& piece : plan.placement)
    if (piece.stage == stage) pieces.at(piece.chunk) = &piece;
  StageUnits own;
  std::vector<UnitPtr>& units = own.units.units;
  for (const PlacedPiece* piece : pieces) {
    const auto first = static_cast<int64_t>(units.size());
    units.insert(units.end(), chain.begin() + piece->first, chain.begin() + piece->last);
    own.chunks.push_back({first, static_cast<int64_t>(units.size())});
  }
  return own;
}

std::vector<UnitPtr> build_chain(PreparedRun& run) {
  std::shared_ptr<Attention> chosen;
  if (run.plugins.attention)
    chosen = std::make_shared<GuardedAttention>(run.plan.id_of(Attention::kKind), run.plugins.attention);
  Builder builder{nullptr, std::move(chosen), *run.mesh, run.plan.model};
  const std::string model = run.plan.id_of(Model::kKind);
  builder.weight_rules = [&](const std::string& format) {
    return plugin_call({model, "weight_rules"}, [&] { return run.plugins.model->weight_rules(format); });
  };
  const auto layers = build_strategies(run.plugins.strategies, builder);
  run.plugins.attention = builder.finish_attention();
  run.batch_cuts = builder.batch_cuts, run.activation_cuts = builder.activation_cuts;
  std::vector<UnitPtr> chain = plugin_call({model, "build"}, [&] {
    std::vector<UnitPtr> units = run.plugins.model->build(*layers);
    if (units.empty() || std::find(units.begin(), units.end(), nullptr) != units.end())
      throw fail(ErrorCode::plugin, "returned ", units.size(), " units", units.empty() ? "" : ", some of them null",
                 "; wanted a chain of them");
    return units;
  });
  layers->check();
  run.added_params = layers->added();
  run.model_params = UnitList{chain}.all();
  return chain;
}

void place_chain(PreparedRun& run, const std::vector<UnitPtr>& chain) {
  run.plan.schedule = pieces_of(*run.plugins.schedule);
  run.plan.placement = place_pieces(run, chain);
  count_parameters(run, chain);
  auto [units, chunks] = units_of(run.plan, run.stage(), chain);
  run.units = std::move(units), run.chunk_units = std::move(chunks);
  plan_slots(run.plan, *run.plugins.schedule);
  if (run.plan.run.seq_length.known()) check_programs(run.plan, *run.plugins.schedule);  // else nothing is trained
  plan_positions(run);
  count_fullest_rank(run.plan);
}

}  // namespace drivetrain
