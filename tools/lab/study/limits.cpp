#include "study/limits.h"

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"

namespace drivetrain::study {
namespace {

std::string gigabytes(double bytes) { return formatted("%.3g GB", bytes / 1e9); }

// All ranks of the run are on this host, and their tensors are in its memory.
bool is_on_this_host(const CellPlan& plan) {
  const Value* const device = plan.resolved.find("device");
  return plan.hosts.empty() && device && device->is_string() && device->as_string() == "cpu";
}

std::string memory_verdict(const StudyFile& study, const CellPlan& plan, double memory_bytes) {
  const double bytes = plan.planned_bytes(), all = bytes * static_cast<double>(plan.world_size);
  if (!plan.too_large.empty()) return plan.too_large;
  if (study.memory_limit > 0 && bytes > static_cast<double>(study.memory_limit))
    return concat(gigabytes(bytes), " a rank are planned, \"memory_limit_bytes\" is ",
                  gigabytes(static_cast<double>(study.memory_limit)));
  if (memory_bytes > 0 && all > memory_bytes && is_on_this_host(plan))
    return concat(gigabytes(all), " are planned for its ranks, this host has ", gigabytes(memory_bytes));
  return "";
}

}  // namespace

std::vector<std::string> expected_failures(const StudyFile& study, const std::vector<Cell>& cells,
                                           const std::vector<CellPlan>& plans, double memory_bytes) {
  std::vector<std::string> lines;
  double all_s = 0;
  for (size_t i = 0; i < cells.size(); ++i) {
    const CellPlan& plan = plans[i];
    if (!plan.refusal.empty() || cells[i].is_noise) continue;
    const double run_s = plan.step_s * static_cast<double>(plan.steps());
    all_s += run_s * static_cast<double>(study.repeats.most);
    if (const std::string verdict = memory_verdict(study, plan, memory_bytes); !verdict.empty())
      lines.push_back(concat(cells[i].id, " will be out of memory by its plan: ", verdict));
    if (run_s > study.timeout_s)
      lines.push_back(concat(cells[i].id, " will end at its \"timeout_s\", ", study.timeout_s,
                             " s: its steps alone are planned to ", formatted("take %.4g s", run_s)));
  }
  all_s /= static_cast<double>(study.dispatch.slots);
  if (study.budget_s > 0 && all_s > study.budget_s)
    lines.push_back(concat("\"budget_s\" is ", study.budget_s, " s: the steps of all runs are planned to ",
                           formatted("take %.4g s, and the last runs will be skipped", all_s)));
  return lines;
}

}  // namespace drivetrain::study
