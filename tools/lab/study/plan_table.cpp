#include "study/plan_table.h"

#include <algorithm>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"

namespace drivetrain::study {
namespace {

std::string megabytes(double bytes) { return formatted("%.1f MB", bytes / 1e6); }

std::string verdict(const CellPlan& plan, const ExpectedEnd& end) {
  if (!plan.refusal.empty()) return "refused: " + first_line(plan.refusal);
  return concat(end.too_large.empty() ? "" : "TOO LARGE, ", end.too_slow.empty() ? "" : "TOO SLOW, ",
                end.too_short.empty() ? "" : "TOO SHORT, ", "batch ", plan.batch("train_batch_size"), " = ",
                plan.batch("micro_batch_size"), " x ", plan.batch("accumulation"), " x ",
                plan.plan.find("batch")->find("ranks")->as_int());
}

size_t runs_of(const StudyFile& study, const std::vector<CellPlan>& plans) {
  const auto ran = std::count_if(plans.begin(), plans.end(), [](const CellPlan& plan) { return plan.refusal.empty(); });
  return static_cast<size_t>(ran) * static_cast<size_t>(study.repeats.most);
}

std::string step_text(const CellPlan& plan) { return plan.step_s > 0 ? formatted("%.4g s", plan.step_s) : "-"; }

// Seconds in steps of all runs whose time is known; start-up and what the end writes are not in it.
double seconds_in_steps(const StudyFile& study, const std::vector<CellPlan>& plans) {
  double sum = 0;
  for (const CellPlan& plan : plans) sum += plan.step_s * static_cast<double>(plan.steps() * study.repeats.most);
  return sum;
}

// What is known of time from the machine's file.
std::string times_text(const StudyFile& study, const std::vector<CellPlan>& plans) {
  std::string text;
  size_t timed = 0, untimed = 0;
  for (const CellPlan& plan : plans) {
    timed += plan.step_s > 0, untimed += plan.refusal.empty() && plan.step_s == 0;
    const bool told = text.find(first_line(plan.no_time)) != std::string::npos;
    if (!plan.no_time.empty() && !told) text += "no planned time: " + first_line(plan.no_time) + "\n";
  }
  if (timed == 0)
    return "no planned time: give --hardware FILE, which `drivetrain bench hardware --output FILE` writes\n";
  return text +
         formatted("planned: %s%.4g s in steps", study.repeats.until > 0 ? "at most " : "",
                   seconds_in_steps(study, plans)) +
         (untimed > 0 ? concat(" without ", untimed, " cells that have no time") : "") +
         "; start-up and what is written at the end come on top\n";
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

std::string plan_text(const StudyFile& study, const Design& design, const std::vector<CellPlan>& plans, double wall_s,
                      const HostMemory& here) {
  size_t width = 4;
  for (const Cell& cell : design.cells) width = std::max(width, shown(cell.id).size());
  const int columns = static_cast<int>(std::min<size_t>(width, 100));
  std::string text = formatted("%-*s  ranks  planned per rank      step\n", columns, "cell");
  for (size_t i = 0; i < plans.size(); ++i) {
    const std::string memory = plans[i].refusal.empty() ? megabytes(plans[i].planned_bytes()) : "-";
    const char* role = design.cells[i].is_reference ? "  (reference)"
                       : design.cells[i].is_noise   ? "  (noise floor)"
                                                    : "";
    text += formatted("%-*s  %5lld  %16s  %8s  ", columns, shown(design.cells[i].id).c_str(),
                      static_cast<long long>(plans[i].world_size), memory.c_str(), step_text(plans[i]).c_str());
    text += verdict(plans[i], expected_end(study, plans[i], here)) + role + "\n";
  }
  if (design.left_out > 0) text += concat(design.left_out, " cells are left out by constraints\n");
  if (!design.aliasing.empty()) text += design.aliasing + "\n";
  return text + times_text(study, plans) + cost(study, runs_of(study, plans), wall_s) + "\n";
}

std::string plan_json(const StudyFile& study, const Design& design, const std::vector<CellPlan>& plans, double wall_s,
                      const HostMemory& here) {
  Value cells = Value::array();
  for (size_t i = 0; i < plans.size(); ++i) {
    Value cell = Value::object();
    cell.set("cell", design.cells[i].id), cell.set("world_size", plans[i].world_size);
    const ExpectedEnd end = expected_end(study, plans[i], here);
    cell.set("verdict", !plans[i].refusal.empty() ? "refused"
                        : !end.too_large.empty()  ? "too large"
                        : !end.too_slow.empty()   ? "too slow"
                        : !end.too_short.empty()  ? "too short"
                                                  : "accepted");
    cell.set("reason", !plans[i].refusal.empty() ? plans[i].refusal
                       : !end.too_large.empty()  ? end.too_large
                       : !end.too_slow.empty()   ? end.too_slow
                                                 : end.too_short);
    cell.set("planned_bytes", plans[i].planned_bytes());
    cell.set("planned_step_s", plans[i].step_s > 0 ? Value(plans[i].step_s) : Value());
    cell.set("no_planned_time", plans[i].no_time);
    cell.set("train_batch_size", plans[i].batch("train_batch_size"));
    cell.set("reference", design.cells[i].is_reference), cell.set("noise", design.cells[i].is_noise);
    cells.items().push_back(std::move(cell));
  }
  const size_t runs = runs_of(study, plans);
  Value plan = Value::object(), expected = Value::array();
  for (const std::string& line : expected_failures(study, design.cells, plans, here)) expected.items().push_back(line);
  plan.set("expected_failures", std::move(expected));
  plan.set("cells", std::move(cells)), plan.set("left_out", design.left_out), plan.set("aliasing", design.aliasing);
  plan.set("runs", static_cast<int64_t>(runs)), plan.set("repeats", study.repeats.most);
  plan.set("seconds", wall_s > 0 ? Value(wall_s * static_cast<double>(runs)) : Value());
  const double in_steps = seconds_in_steps(study, plans);
  plan.set("planned_seconds_in_steps", in_steps > 0 ? Value(in_steps) : Value());
  plan.set("at_most_seconds", static_cast<double>(runs) * study.timeout_s);
  return plan.to_json(2) + "\n";
}

}  // namespace drivetrain::study
