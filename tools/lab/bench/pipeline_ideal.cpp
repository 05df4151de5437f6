#include "bench/pipeline_ideal.h"

#include <algorithm>
#include <limits>

#include <drivetrain/toolkit/pipeline/timeline.h>

namespace drivetrain {
namespace {

double of(const PhaseSeconds& phases, Phase phase) { return phases[static_cast<size_t>(phase)]; }

// A stage's time is divided over its chunks as the model counts their cost.
std::vector<PieceTime> piece_seconds(const RunPlan& plan, const std::vector<PipelineIdeal::Stage>& stages) {
  std::vector<double> costs(stages.size());
  for (const PlacedPiece& piece : plan.placement) costs[piece.stage] += piece.cost;
  const auto micro_batches = static_cast<double>(plan.batch.accumulation);
  std::vector<PieceTime> times;
  for (const PlacedPiece& piece : plan.placement) {
    const PipelineIdeal::Stage& stage = stages[piece.stage];
    const double share = piece.cost / costs[piece.stage] / micro_batches;
    times.push_back({stage.forward * share, stage.backward * share, stage.backward_weight * share});
  }
  return times;
}

}  // namespace

std::optional<PipelineIdeal> pipeline_ideal(const PreparedRun& run, const std::vector<PhaseSeconds>& phases) {
  if (run.plan.schedule.stages == 1 || phases.empty()) return std::nullopt;
  PipelineIdeal ideal;
  double finish = std::numeric_limits<double>::max(), update = 0, load = 0;
  for (const int64_t rank : run.mesh->ranks({Schedule::kAxis})) {
    const PhaseSeconds& one = phases.at(rank);
    ideal.stages.push_back({of(one, Phase::forward), of(one, Phase::backward), of(one, Phase::backward_weight)});
    finish = std::min(finish, of(one, Phase::finish));  // the others wait in it for the last stage that is done
    update = std::max(update, of(one, Phase::update));
    load = std::max(load, of(one, Phase::load));
  }
  const Timeline timeline =
      simulate(*run.plugins.schedule, run.plan.batch.accumulation, Pass::train, piece_seconds(run.plan, ideal.stages));
  ideal.seconds = timeline.makespan + load + finish + update;
  ideal.bubble = timeline.bubble();
  return ideal;
}

}  // namespace drivetrain
