#include "plan/run_plan.h"

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

std::map<int64_t, int64_t> RunPlan::by_stage(int64_t PlacedPiece::*what) const {
  std::map<int64_t, int64_t> sums;
  for (const PlacedPiece& piece : placement) sums[piece.stage] += piece.*what;
  return sums;
}

}  // namespace drivetrain
