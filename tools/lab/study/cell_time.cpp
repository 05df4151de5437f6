#include "study/cell_time.h"

#include <algorithm>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain::study {
namespace {

void plan_time(CellPlan& plan, const Questions& questions, const std::string& base, const std::string& hardware) {
  ProcessStart start;
  start.environment = plan.environment;
  start.command = {"drivetrain", "plan", base, "-n", std::to_string(plan.world_size), "--hardware", hardware, "--json"};
  for (const std::string& set : plan.sets) start.command.insert(start.command.end(), {"--set", set});
  const std::optional<Value> answer = questions.answer(start, plan.no_time);
  if (!answer) return;
  const Value* const forecast = answer->find("forecast");
  const Value *const fits = forecast ? forecast->find("fits") : nullptr, *const machine =
                                                                             forecast ? forecast->find("hardware")
                                                                                      : nullptr;
  if (fits && fits->is_bool() && !fits->as_bool())
    plan.too_large = formatted("%.3g GB a rank are planned, too much for ", plan.planned_bytes() / 1e9) +
                     (machine && machine->is_string() ? machine->as_string() : hardware);
  const Value* at = &*answer;
  for (const char* key : {"forecast", "time", "seconds"})
    if (at) at = at->find(key);
  if (!at || !at->is_number()) throw fail(ErrorCode::internal, "`drivetrain plan --json` has no forecast.time.seconds");
  plan.step_s = at->as_double();
}

}  // namespace

void plan_times(std::vector<CellPlan>& plans, const Questions& questions, const std::string& base,
                const std::string& hardware) {
  std::vector<CellPlan*> asked;
  for (CellPlan& plan : plans)
    if (plan.refusal.empty()) asked.push_back(&plan);
  ask_side_by_side(0, asked.size(), [&](size_t i) { plan_time(*asked[i], questions, base, hardware); });
  const bool any = std::any_of(asked.begin(), asked.end(), [](const CellPlan* plan) { return plan->step_s > 0; });
  if (!any && !asked.empty())
    throw fail(ErrorCode::config, "study: no cell has a planned time: ", asked.front()->no_time);
}

}  // namespace drivetrain::study
