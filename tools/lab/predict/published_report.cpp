#include "predict/published_report.h"

#include <algorithm>
#include <cmath>

#include <drivetrain/toolkit/text.h>

namespace drivetrain {
namespace {

RowResult predict_row(const PublishedRow& row, const PublishedTable& table) {
  RowResult result;
  result.row = &row;
  if (row.tgs && table.system.has_time) {
    result.time = step_time(work_of(row, table.system), table.hardware,
                            model_flops(row.model, static_cast<double>(row.seq_length)));
    result.tgs_error = result.time->tgs / *row.tgs - 1;
  }
  if (row.gib && table.system.has_memory) {
    result.memory = memory_of(row, table.system.memory);
    const double device = table.hardware.memory.gib;
    result.at_limit = *row.gib >= device * (1 - table.system.memory.limit_share);
    if (!result.at_limit) result.gib_error = result.memory->gib / *row.gib - 1;
  }
  return result;
}

std::string signed_percent(double error) { return formatted("%+6.1f %%", 100 * error); }

std::string row_text(const RowResult& r, size_t width) {
  std::string text = r.row->label + std::string(width - r.row->label.size(), ' ');
  if (r.time) text += formatted("  TGS %8.1f %8.1f %s", *r.row->tgs, r.time->tgs, signed_percent(*r.tgs_error).c_str());
  if (r.memory)
    text += formatted("  GiB %6.1f %6.1f %s", *r.row->gib, r.memory->gib,
                      r.at_limit ? "at the device's limit, not judged" : signed_percent(*r.gib_error).c_str());
  if (!r.time && !r.memory) text += "  nothing printed that is predicted here";
  return text + "\n";
}

std::string summary_text(const char* what, const ErrorSummary& s) {
  if (s.rows == 0) return "";
  return formatted("%s of %zu rows: errors %.1f %% on average, %.1f %% in the middle, %.1f %% at most\n", what, s.rows,
                   100 * s.mean, 100 * s.median, 100 * s.worst);
}

Value summary_value(const ErrorSummary& s) {
  Value value = Value::object();
  value.set("rows", static_cast<int64_t>(s.rows));
  value.set("mean", s.mean), value.set("median", s.median), value.set("worst", s.worst);
  return value;
}

Value memory_parts(const RowMemory& memory) {
  Value parts = Value::object();
  for (const MemoryPart& part : memory.parts) parts.set(part.what, part.gib);
  return parts;
}

Value row_value(const RowResult& r) {
  Value value = Value::object();
  value.set("row", r.row->label);
  if (r.time) {
    value.set("tgs", *r.row->tgs), value.set("planned_tgs", r.time->tgs), value.set("tgs_error", *r.tgs_error);
    value.set("time", r.time->to_value());
  }
  if (r.memory) {
    value.set("gib", *r.row->gib), value.set("planned_gib", r.memory->gib), value.set("at_limit", r.at_limit);
    value.set("gib_error", r.gib_error ? Value(*r.gib_error) : Value());
    value.set("memory_gib", memory_parts(*r.memory));
  }
  return value;
}

}  // namespace

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

TableResult predict_table(const PublishedTable& table) {
  TableResult result;
  std::vector<double> tgs, gib;
  for (const PublishedRow& row : table.rows) {
    result.rows.push_back(predict_row(row, table));
    if (const auto& error = result.rows.back().tgs_error) tgs.push_back(*error);
    if (const auto& error = result.rows.back().gib_error) gib.push_back(*error);
  }
  result.tgs = summary_of(tgs), result.gib = summary_of(gib);
  return result;
}

std::string table_text(const PublishedTable& table, const TableResult& result) {
  std::string text = concat(table.id, ", system ", table.system.name, ", on ", table.hardware.name, "\n");
  text += "printed, planned, error; TGS: tokens per rank and second\n";
  size_t width = 0;
  for (const RowResult& row : result.rows) width = std::max(width, row.row->label.size());
  for (const RowResult& row : result.rows) text += row_text(row, width);
  text += summary_text("TGS", result.tgs) + summary_text("memory", result.gib);
  text += "assumed:\n";
  for (const std::string& line : table.system.assumptions) text += "  - " + line + "\n";
  return text;
}

Value table_value(const PublishedTable& table, const TableResult& result) {
  Value value = Value::object(), rows = Value::array(), assumed = Value::array();
  for (const RowResult& row : result.rows) rows.items().push_back(row_value(row));
  for (const std::string& line : table.system.assumptions) assumed.items().push_back(line);
  value.set("table", table.id), value.set("system", table.system.name), value.set("hardware", table.hardware.name);
  value.set("rows", std::move(rows));
  value.set("tgs_errors", summary_value(result.tgs)), value.set("memory_errors", summary_value(result.gib));
  value.set("assumptions", std::move(assumed));
  return value;
}

}  // namespace drivetrain
