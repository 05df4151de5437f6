#include "planner/table_report.h"

#include <algorithm>
#include <cmath>

#include <drivetrain/toolkit/text.h>

namespace drivetrain {
namespace {

RowResult plan_row(const PublishedRow& row, const RowMachine& machine, const PlanRow& plan) {
  RowResult result;
  result.row = &row;
  result.forecast = plan(row, machine);
  if (row.tgs && machine.profile.time) result.tgs_error = result.forecast.time.tgs / *row.tgs - 1;
  if (row.gib && machine.profile.memory) {
    result.at_limit = *row.gib >= machine.hardware.memory.gib * (1 - machine.profile.memory->limit_share);
    if (!result.at_limit) result.gib_error = result.forecast.memory.gib / *row.gib - 1;
  }
  return result;
}

double scaling_of(const RowResult& one, const std::vector<RowResult>& rows) {
  const RowResult* fewest = &one;
  for (const RowResult& other : rows)
    if (other.row->ranks < fewest->row->ranks && same_but_ranks(*other.row, *one.row)) fewest = &other;
  return one.forecast.time.tgs / fewest->forecast.time.tgs;
}

std::string signed_percent(double error) { return formatted("%+6.1f %%", 100 * error); }

std::string row_text(const RowResult& r, size_t width) {
  std::string text = r.row->label + std::string(width - r.row->label.size(), ' ');
  const StepTime& time = r.forecast.time;
  if (r.tgs_error)
    text += formatted("  TGS %8.1f %8.1f %s  %6.1f TFLOPS, MFU %4.1f %%, %8.3f samples/s, scaling %5.1f %%",
                      *r.row->tgs, time.tgs, signed_percent(*r.tgs_error).c_str(), time.tflops, 100 * time.mfu,
                      time.samples_per_s, 100 * r.scaling);
  if (r.row->gib)
    text += formatted("  GiB %6.1f %6.1f %s", *r.row->gib, r.forecast.memory.gib,
                      r.at_limit    ? "at the device's limit, not judged"
                      : r.gib_error ? signed_percent(*r.gib_error).c_str()
                                    : "not judged");
  return text + (r.row->held_back ? "  held back\n" : "\n");
}

Value row_value(const RowResult& r, const RowMachine& machine) {
  Value value = Value::object();
  value.set("row", r.row->label), value.set("ranks", r.row->ranks), value.set("profile", r.row->profile);
  value.set("held_back", r.row->held_back);
  if (r.tgs_error) {
    value.set("tgs", *r.row->tgs), value.set("planned_tgs", r.forecast.time.tgs), value.set("tgs_error", *r.tgs_error);
    value.set("scaling", r.scaling);
  }
  if (r.row->gib) {
    value.set("gib", *r.row->gib), value.set("planned_gib", r.forecast.memory.gib), value.set("at_limit", r.at_limit);
    value.set("gib_error", r.gib_error ? Value(*r.gib_error) : Value());
  }
  value.set("forecast", forecast_value(r.forecast, machine.hardware)), value.set("config", r.row->config);
  return value;
}

}  // namespace

bool same_but_ranks(const PublishedRow& a, const PublishedRow& b) {
  const auto settings = [](const PublishedRow& r) {
    return std::tuple(r.config.find("model")->to_json(), r.tensor, r.stages, r.context, r.shard_ranks, r.shard_values,
                      r.recompute, r.micro_batch, r.micro_batches, r.seq_length);
  };
  return settings(a) == settings(b);
}

std::string summary_text(const std::string& what, const ErrorSummary& s) {
  if (s.rows == 0) return "";
  return formatted("%s of %zu rows: errors %.1f %% on average, %.1f %% in the middle, %.1f %% at most\n", what.c_str(),
                   s.rows, 100 * s.mean, 100 * s.median, 100 * s.worst);
}

Value summary_value(const ErrorSummary& s) {
  Value value = Value::object();
  value.set("rows", static_cast<int64_t>(s.rows));
  value.set("mean", s.mean), value.set("median", s.median), value.set("worst", s.worst);
  return value;
}

ErrorSummary summary_of(std::vector<double> errors) {
  ErrorSummary summary;
  summary.rows = errors.size();
  if (errors.empty()) return summary;
  for (double& error : errors) summary.mean += (error = std::fabs(error)) / static_cast<double>(summary.rows);
  std::sort(errors.begin(), errors.end());
  const size_t middle = errors.size() / 2;
  summary.median = errors.size() % 2 == 1 ? errors[middle] : (errors[middle - 1] + errors[middle]) / 2;
  summary.worst = errors.back();
  return summary;
}

TableResult plan_rows(const PublishedTable& table, const MachineOfRow& machine_of, const PlanRow& plan) {
  TableResult result;
  std::vector<double> tgs[2], gib[2];  // by held_back
  for (const PublishedRow& row : table.rows) {
    result.rows.push_back(plan_row(row, machine_of(row), plan));
    if (const auto& error = result.rows.back().tgs_error) tgs[row.held_back].push_back(*error);
    if (const auto& error = result.rows.back().gib_error) gib[row.held_back].push_back(*error);
  }
  for (RowResult& row : result.rows) row.scaling = scaling_of(row, result.rows);
  result.tgs = summary_of(tgs[0]), result.gib = summary_of(gib[0]);
  result.held_tgs = summary_of(tgs[1]), result.held_gib = summary_of(gib[1]);
  return result;
}

std::string table_text(const PublishedTable& table, const TableResult& result, const MachineOfRow& machine_of) {
  std::string text = concat(table.id, ", profile ", table.system.name, ", on ",
                            table.rows.empty() ? "" : machine_of(table.rows.front()).hardware.name, "\n");
  text +=
      "printed, planned, error; TGS: tokens per rank and second; TFLOPS and MFU without what runs again; scaling: TGS "
      "over that of the fewest ranks of the table\n";
  size_t width = 0;
  for (const RowResult& row : result.rows) width = std::max(width, row.row->label.size());
  for (const RowResult& row : result.rows) text += row_text(row, width);
  text += summary_text("TGS", result.tgs) + summary_text("memory", result.gib);
  text += summary_text("TGS, held back from every fit,", result.held_tgs);
  text += summary_text("memory, held back when constants were chosen,", result.held_gib);
  text += "assumed:\n";
  for (const std::string& line : table.system.assumptions) text += "  - " + line + "\n";
  return text;
}

Value table_value(const PublishedTable& table, const TableResult& result, const MachineOfRow& machine_of) {
  Value value = Value::object(), rows = Value::array(), assumed = Value::array();
  for (const RowResult& row : result.rows) rows.items().push_back(row_value(row, machine_of(*row.row)));
  for (const std::string& line : table.system.assumptions) assumed.items().push_back(line);
  value.set("table", table.id), value.set("system", table.system.name);
  if (!table.rows.empty()) value.set("hardware", machine_of(table.rows.front()).hardware.name);
  value.set("rows", std::move(rows));
  value.set("tgs_errors", summary_value(result.tgs)), value.set("memory_errors", summary_value(result.gib));
  value.set("held_back_tgs_errors", summary_value(result.held_tgs));
  value.set("held_back_memory_errors", summary_value(result.held_gib));
  value.set("assumptions", std::move(assumed));
  return value;
}

}  // namespace drivetrain
