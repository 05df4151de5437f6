#include "planner/fit_report.h"

#include <algorithm>
#include <set>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain {
namespace {

constexpr double kFewRanks = 64, kManyRanks = 1024;
constexpr double kHeld = 0.05;  // an error beyond it is told as what the form does not hold

// Numbers of a machine or a profile with their dotted names.
void walk(const Value& value, const std::string& name, const std::function<void(const std::string&, double)>& visit) {
  if (value.is_number()) visit(name, value.as_double());
  if (!value.is_object()) return;
  for (const Value::Member& m : value.members()) walk(m.value, name.empty() ? m.key : name + "." + m.key, visit);
}

std::string line_of(const std::string& owner, const std::string& name, double value, const std::string& from) {
  return formatted("  %-18s %-28s %12.6g  %s\n", owner.c_str(), name.c_str(), value,
                   from.empty() ? "(not said)" : from.c_str());
}

Value hardware_numbers(const Hardware& hardware) {
  Value value = hardware_value(hardware);
  value.erase("from");
  return value;
}

Value profile_numbers(const Profile& p) {
  Value value = Value::object();
  if (p.time) {
    Value time = Value::object();
    time.set("step_s", p.time->step_s), time.set("owner_s", p.time->owner_s);
    time.set("update_bytes", p.time->update_bytes), time.set("overlap", p.time->overlap);
    value.set("time", time);
  }
  if (!p.memory) return value;
  Value memory = Value::object();
  const ProfileMemory& m = *p.memory;
  memory.set("overhead_gib", m.overhead_gib), memory.set("whole_bytes", m.whole_bytes);
  memory.set("shared_bytes", m.shared_bytes), memory.set("logit_bytes", m.logit_bytes);
  memory.set("limit_share", m.limit_share), value.set("memory", memory);
  return value;
}

}  // namespace

void FitReport::add(const TableResult& result, const MachineOfRow& machine_of) {
  for (const RowResult& row : result.rows) {
    const RowMachine& machine = machine_of(*row.row);
    const auto known = [&](const Profile& p) { return p.name == machine.profile.name; };
    if (!row.tgs_error) {
      if (std::none_of(memory_.begin(), memory_.end(), known)) memory_.push_back(machine.profile);
      continue;
    }
    if (!constants_) constants_ = FitConstants{machine.hardware, {}};
    if (constants_->hardware.path != machine.hardware.path)
      throw fail(ErrorCode::config, "rows with a TGS count are of two machines, ", constants_->hardware.path, " and ",
                 machine.hardware.path, ", and constants are fitted to one\n   plan their tables one by one");
    constants_->profiles.try_emplace(machine.profile.name, machine.profile);
    (row.row->held_back ? held_ : rows_)
        .push_back({row.row->label, machine.profile.name, concat(row.row->ranks, " ", row.row->config.to_json()),
                    static_cast<double>(row.row->ranks), row.forecast.work, *row.row->tgs});
  }
}

std::string FitReport::constants_text() const {
  std::string text = "constants, and where each is from:\n";
  const auto add = [&](const std::string& owner, const Value& numbers, const Value& from) {
    walk(numbers, "",
         [&](const std::string& name, double value) { text += line_of(owner, name, value, origin_of(from, name)); });
  };
  if (constants_) {
    add("machine", hardware_numbers(constants_->hardware), constants_->hardware.from);
    for (const auto& [name, profile] : constants_->profiles) add(name, profile_numbers(profile), profile.from);
  }
  for (const Profile& profile : memory_) add(profile.name, profile_numbers(profile), profile.from);
  return text;
}

const FitReport::Judged& FitReport::judged() {
  if (judged_) return *judged_;
  std::vector<FitRow> few;
  std::copy_if(rows_.begin(), rows_.end(), std::back_inserter(few),
               [](const FitRow& row) { return row.ranks <= kFewRanks; });
  judged_ = {leave_each_out(rows_, *constants_), fitted(rows_, *constants_), fitted(few, *constants_)};
  return *judged_;
}

std::vector<double> FitReport::errors(const FitConstants& constants, double above_ranks) const {
  std::vector<double> list;
  for (const FitRow& row : rows_)
    if (row.ranks > above_ranks) list.push_back(tgs_error(row, constants));
  return list;
}

std::vector<double> FitReport::held_errors() const {
  std::vector<double> list;
  for (const FitRow& row : held_) list.push_back(tgs_error(row, *constants_));
  return list;
}

std::string FitReport::beyond_text(const Judged& j) const {
  std::set<std::string> lines;
  for (size_t i = 0; i < rows_.size(); ++i)
    if (std::abs(j.each.errors[i]) > kHeld)
      lines.insert(formatted("  %+6.1f %%  ", 100 * j.each.errors[i]) + rows_[i].label + "\n");
  for (const FitRow& row : held_)
    if (const double error = tgs_error(row, *constants_); std::abs(error) > kHeld)
      lines.insert(formatted("  %+6.1f %%  ", 100 * error) + row.label + ", held back\n");
  if (lines.empty()) return "";
  std::string text = formatted("what the form does not hold within %.0f %% (left out of the fit):\n", 100 * kHeld);
  for (const std::string& line : lines) text += line;
  return text;
}

std::string FitReport::text() {
  std::string text = constants_text();
  if (rows_.empty()) return text;
  const Judged& j = judged();
  std::set<std::string> configs;
  for (const FitRow& row : rows_) configs.insert(row.config);
  text += formatted(
      "fitted constants, as %zu rows of %zu configs need them; least and greatest with one config left out:\n",
      rows_.size(), configs.size());
  FitConstants shipped = *constants_, all = j.of_all, few = j.of_few;
  for (const FitConstant& one : constants_of(shipped))
    if (is_fitted(one.from)) {
      const auto& [least, most] = j.each.ranges.at(one.name);
      text +=
          formatted("  %-34s %12.6g in the file, %12.6g fitted now, %10.4g to %10.4g; %10.4g by rows of up to %.0f\n",
                    one.name.c_str(), one.at(shipped), one.at(all), least, most, one.at(few), kFewRanks);
    }
  text += summary_text("TGS, constants as in the files,", summary_of(errors(*constants_, 0)));
  text += summary_text("TGS, each config left out of the fit in turn,", summary_of(j.each.errors));
  text += summary_text(formatted("TGS, fitted to at most %.0f ranks, of more than that,", kFewRanks),
                       summary_of(errors(j.of_few, kFewRanks)));
  text += summary_text(formatted("TGS, fitted to at most %.0f ranks, of %.0f,", kFewRanks, kManyRanks),
                       summary_of(errors(j.of_few, kManyRanks - 1)));
  text += summary_text("TGS, held back from every fit, constants as in the files,", summary_of(held_errors()));
  return text + beyond_text(j);
}

Value FitReport::to_value() {
  Value value = Value::object(), constants = Value::array();
  if (rows_.empty()) return value;
  const Judged& j = judged();
  FitConstants shipped = *constants_, all = j.of_all;
  for (const FitConstant& one : constants_of(shipped)) {
    Value row = Value::object();
    row.set("name", one.name), row.set("value", one.at(shipped)), row.set("from", one.from);
    if (is_fitted(one.from)) row.set("fitted_now", one.at(all));
    constants.items().push_back(std::move(row));
  }
  value.set("constants", std::move(constants));
  value.set("as_shipped", summary_value(summary_of(errors(*constants_, 0))));
  value.set("left_out", summary_value(summary_of(j.each.errors)));
  value.set("held_back", summary_value(summary_of(held_errors())));
  value.set("from_few_ranks", summary_value(summary_of(errors(j.of_few, kFewRanks))));
  value.set("from_few_ranks_at_1024", summary_value(summary_of(errors(j.of_few, kManyRanks - 1))));
  return value;
}

}  // namespace drivetrain
