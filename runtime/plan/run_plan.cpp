#include "plan/run_plan.h"

#include <algorithm>

namespace drivetrain {

const PlannedPlugin* RunPlan::plugin(const std::string& kind) const {
  for (const PlannedPlugin& plugin : plugins)
    if (plugin.kind == kind && plugin.enabled) return &plugin;
  return nullptr;
}

std::string RunPlan::id_of(const std::string& kind) const {
  const PlannedPlugin* const found = plugin(kind);
  return found ? found->id() : "";
}

std::map<int64_t, int64_t> RunPlan::blocks_by_stage() const {
  std::map<int64_t, int64_t> blocks;
  for (const PlacedPiece& piece : placement) blocks[piece.stage] += piece.blocks;
  return blocks;
}

std::map<int64_t, int64_t> RunPlan::parameters_by_stage() const {
  std::map<int64_t, int64_t> parameters;
  for (const PlacedPiece& piece : placement) parameters[piece.stage] += piece.parameters;
  return parameters;
}

std::map<int64_t, int64_t> RunPlan::trained_by_stage() const {
  std::map<int64_t, int64_t> trained;
  for (const PlacedPiece& piece : placement) trained[piece.stage] += piece.trained;
  return trained;
}

void add_timeline(RunPlan& plan, const Schedule& schedule) {
  const int64_t pieces = plan.schedule.stages * plan.schedule.chunks,
                micro_batches = std::max<int64_t>(plan.batch.accumulation, 1);
  plan.schedule.timeline.reset();
  if (pieces * micro_batches > kMostTimelineBoxes) return;
  std::vector<double> costs;
  for (const PlacedPiece& piece : plan.placement) costs.push_back(piece.cost);
  if (static_cast<int64_t>(costs.size()) != pieces) costs.clear();
  plan.schedule.timeline = simulate(schedule, micro_batches, Pass::train, piece_times(costs));
}

}  // namespace drivetrain
