#include "report/memory_report.h"

#include <algorithm>

#include <drivetrain/toolkit/text.h>

namespace drivetrain {
namespace {

// "  parameters                  497.8       4.00"
std::string memory_row(const std::string& name, const std::vector<double>& columns, int64_t parameters) {
  std::string line = formatted("  %-24s", name.c_str());
  for (const double bytes : columns)
    line += formatted("%12.1f%10.2f", bytes / 1e6, bytes / static_cast<double>(std::max<int64_t>(parameters, 1)));
  return line;
}

// The table's last rows leave the planned columns empty.
std::string measured_memory_row(const std::string& name, double bytes, int64_t parameters) {
  return memory_row(name + std::string(22, ' '), {bytes}, parameters);
}

std::string memory_heading(const std::string& name, const char* first, const char* second) {
  const std::string line = formatted("%-26s%12s%10s", name.c_str(), first, "B/param");
  return second ? line + formatted("%12s%10s", second, "B/param") : line;
}

template <class Figure>
double largest_of(const std::vector<MeasuredMemory>& ranks, const Figure& figure) {
  double most = 0;
  for (const MeasuredMemory& rank : ranks) most = std::max(most, figure(rank));
  return most;
}

Value table_value(const MemoryTable& table) {
  Value value = Value::object();
  for (const MemoryClass c : kStateClasses) value.set(memory_class_name(c), static_cast<int64_t>(table[c]));
  value.set("states", static_cast<int64_t>(table.states()));
  value.set("buffers", static_cast<int64_t>(table[MemoryClass::buffers]));
  return value;
}

Value planned_value(const PlannedMemory& planned) {
  Value value = table_value(planned);
  value.set("activations", static_cast<int64_t>(planned[MemoryClass::activations]));
  value.set("working", static_cast<int64_t>(planned.working));
  value.set("slack", static_cast<int64_t>(planned.slack));
  value.set("together", static_cast<int64_t>(planned.together()));
  value.set("states_on_host", static_cast<int64_t>(planned.states_on_host()));
  value.set("on_device", static_cast<int64_t>(planned.on_device()));
  value.set("on_host", static_cast<int64_t>(planned.on_host()));
  return value;
}

}  // namespace

std::vector<std::string> planned_lines(const PlannedMemory& planned, int64_t parameters, bool sources) {
  std::vector<std::string> lines = {memory_heading("memory per rank", "planned MB", nullptr)};
  const auto add = [&](MemoryClass c) {
    const std::string& source = planned.sources[static_cast<size_t>(c)];
    lines.push_back(memory_row(memory_class_name(c), {planned[c]}, parameters) +
                    (sources && !source.empty() ? "   " + source : ""));
  };
  for (const MemoryClass c : kStateClasses) add(c);
  lines.push_back(memory_row("model states", {planned.states()}, parameters));
  if (planned.states_on_host() > 0)
    lines.push_back(memory_row("of them on the host", {planned.states_on_host()}, parameters));
  for (const MemoryRow& row : planned.passing_rows())
    lines.push_back(memory_row(row.name, {row.bytes}, parameters) +
                    (sources && !row.source.empty() ? "   " + row.source : ""));
  if (planned.passing() > 0) lines.push_back(memory_row("together", {planned.together()}, parameters));
  if (planned.on_host() > 0) {
    lines.push_back(memory_row("on the device", {planned.on_device()}, parameters));
    lines.push_back(memory_row("on the host", {planned.on_host()}, parameters) +
                    (sources ? "   " + planned.host_source : ""));
  }
  return lines;
}

std::vector<std::string> stage_lines(const RunPlan& plan) {
  std::vector<std::string> lines;
  const std::vector<PlannedMemory> stages = memory_by_stage(plan);
  if (stages.size() < 2) return lines;
  for (const PlannedMemory& memory : stages) {
    const auto stage = static_cast<int64_t>(lines.size());
    std::string line = formatted("  stage %-3lld %12.1f MB on each of %zu ranks: states %.1f",
                                 static_cast<long long>(stage), memory.on_device() / 1e6,
                                 ranks_of_stage(plan, stage).size(), (memory.states() - memory.states_on_host()) / 1e6);
    for (const MemoryRow& row : memory.passing_rows()) line += formatted(", %s %.1f", row.name, row.bytes / 1e6);
    if (memory.on_host() > 0) line += formatted("; beside it on the host %.1f", memory.on_host() / 1e6);
    lines.push_back(std::move(line));
  }
  lines.insert(lines.begin(), "memory of a rank by stage");
  return lines;
}

std::vector<std::string> measured_lines(const PlannedMemory& planned, const std::vector<MeasuredMemory>& ranks,
                                        int64_t parameters) {
  std::vector<std::string> lines = {memory_heading("memory per rank", "planned MB", "measured MB")};
  if (ranks.size() > 1) lines.back() += concat("  (largest of ", ranks.size(), " ranks)");
  for (const MemoryClass c : kStateClasses)
    lines.push_back(memory_row(memory_class_name(c),
                               {planned[c], largest_of(ranks, [&](const auto& r) { return r[c]; })}, parameters));
  const auto of = [&](const auto& figure) { return largest_of(ranks, figure); };
  lines.push_back(
      memory_row("model states", {planned.states(), of([](const auto& r) { return r.states(); })}, parameters));
  if (const double host = of([](const auto& r) { return r.states_on_host; }); host > 0)
    lines.push_back(memory_row("of them on the host", {planned.states_on_host(), host}, parameters));
  const double buffers = of([](const auto& r) { return r[MemoryClass::buffers]; });
  const double passing = planned.passing();
  lines.push_back(passing > 0 ? memory_row("activations and buffers", {passing, buffers}, parameters)
                              : measured_memory_row("activations and buffers", buffers, parameters));
  if (passing > 0)
    lines.push_back(
        memory_row("together", {planned.together(), of([](const auto& r) { return r.together(); })}, parameters));
  lines.push_back(
      measured_memory_row("peak of the process", of([](const auto& r) { return r.peak_memory; }), parameters));
  return lines;
}

std::vector<std::string> rank_lines(const std::vector<MeasuredMemory>& ranks) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < ranks.size(); ++i) {
    std::string line = concat("memory of rank ", i, ", MB:");
    const auto add = [&](const char* name, double bytes) { line += formatted(" %s %.1f,", name, bytes / 1e6); };
    for (const MemoryClass c : kStateClasses) add(memory_class_name(c), ranks[i][c]);
    add("activations and buffers", ranks[i][MemoryClass::buffers]);
    add("peak of the process", ranks[i].peak_memory);
    line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

Value memory_value(const RunPlan& plan, const std::vector<MeasuredMemory>& ranks) {
  const std::vector<PlannedMemory> stages = memory_by_stage(plan);
  Value list = Value::array();
  for (const MeasuredMemory& rank : ranks) {
    Value one = table_value(rank);
    one.set("states_on_host", static_cast<int64_t>(rank.states_on_host));
    one.set("together", static_cast<int64_t>(rank.together()));
    one.set("peak_memory_bytes", static_cast<int64_t>(rank.peak_memory));
    const int64_t stage = stage_of_rank(plan, static_cast<int64_t>(list.items().size()));
    one.set("planned", planned_value(stages.at(static_cast<size_t>(stage))));
    list.items().push_back(one);
  }
  Value value = Value::object();
  value.set("model_parameters", plan.model.parameters);
  value.set("planned", planned_value(planned_memory(plan)));
  value.set("ranks", list);
  return value;
}

}  // namespace drivetrain
