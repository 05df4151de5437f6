#include "study/plan_table.h"

#include <algorithm>

#include <drivetrain/toolkit/text.h>

#include "config/printable.h"

namespace drivetrain::study {
namespace {

std::string megabytes(double bytes) { return formatted("%.1f MB", bytes / 1e6); }

std::string verdict(const CellPlan& plan) {
  if (!plan.refusal.empty()) return "refused: " + first_line(plan.refusal);
  return concat("batch ", plan.batch("train_batch_size"), " = ", plan.batch("micro_batch_size"), " x ",
                plan.batch("accumulation"), " x ", plan.plan.find("batch")->find("ranks")->as_int());
}

size_t runs_of(const StudyFile& study, const std::vector<CellPlan>& plans) {
  const auto ran = std::count_if(plans.begin(), plans.end(), [](const CellPlan& plan) { return plan.refusal.empty(); });
  return static_cast<size_t>(ran) * static_cast<size_t>(study.repeats.most);
}

std::string cost(const StudyFile& study, size_t runs, double wall_s) {
  const double most = static_cast<double>(runs) * study.timeout_s;
  const double likely = static_cast<double>(runs) * wall_s;
  std::string text = concat(study.repeats.until > 0 ? "at most " : "", runs, " runs: ");
  text += wall_s > 0
              ? formatted("about %.0f s by the runs that are done", likely)
              : formatted("no run is done yet that tells how long they take; at most %.3g s by \"timeout_s\"", most);
  if (study.budget_s > 0) text += formatted("; the budget ends it after %.3g s", study.budget_s);
  return text;
}

}  // namespace

std::string plan_text(const StudyFile& study, const Design& design, const std::vector<CellPlan>& plans, double wall_s) {
  size_t width = 4;
  for (const Cell& cell : design.cells) width = std::max(width, shown(cell.id).size());
  const int columns = static_cast<int>(std::min<size_t>(width, 100));
  std::string text = formatted("%-*s  ranks  planned per rank\n", columns, "cell");
  for (size_t i = 0; i < plans.size(); ++i) {
    const std::string memory = plans[i].refusal.empty() ? megabytes(plans[i].planned_bytes()) : "-";
    const char* role = design.cells[i].is_reference ? "  (reference)"
                       : design.cells[i].is_noise   ? "  (noise floor)"
                                                    : "";
    text += formatted("%-*s  %5lld  %16s  ", columns, shown(design.cells[i].id).c_str(),
                      static_cast<long long>(plans[i].world_size), memory.c_str());
    text += verdict(plans[i]) + role + "\n";
  }
  if (design.left_out > 0) text += concat(design.left_out, " cells are left out by constraints\n");
  if (!design.aliasing.empty()) text += design.aliasing + "\n";
  return text + cost(study, runs_of(study, plans), wall_s) + "\n";
}

std::string plan_json(const StudyFile& study, const Design& design, const std::vector<CellPlan>& plans, double wall_s) {
  Value cells = Value::array();
  for (size_t i = 0; i < plans.size(); ++i) {
    Value cell = Value::object();
    cell.set("cell", design.cells[i].id), cell.set("world_size", plans[i].world_size);
    cell.set("verdict", plans[i].refusal.empty() ? "accepted" : "refused"), cell.set("reason", plans[i].refusal);
    cell.set("planned_bytes", plans[i].planned_bytes());
    cell.set("train_batch_size", plans[i].batch("train_batch_size"));
    cell.set("reference", design.cells[i].is_reference), cell.set("noise", design.cells[i].is_noise);
    cells.items().push_back(std::move(cell));
  }
  const size_t runs = runs_of(study, plans);
  Value plan = Value::object();
  plan.set("cells", std::move(cells)), plan.set("left_out", design.left_out), plan.set("aliasing", design.aliasing);
  plan.set("runs", static_cast<int64_t>(runs)), plan.set("repeats", study.repeats.most);
  plan.set("seconds", wall_s > 0 ? Value(wall_s * static_cast<double>(runs)) : Value());
  plan.set("at_most_seconds", static_cast<double>(runs) * study.timeout_s);
  return plan.to_json(2) + "\n";
}

}  // namespace drivetrain::study
