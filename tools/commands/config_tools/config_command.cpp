// `drivetrain config check|resolve|explain|schema|diff`: the JSON and what it asks for, without training.
#include <iostream>

#include "base/printable.h"
#include "cli/error_line.h"
#include "config_tools/config_commands.h"
#include "report/facts.h"
#include "report/plan_text.h"
#include "train/checked_config.h"

namespace drivetrain {
namespace {

void print_accepted(const CheckedConfig& checked) {
  for (const std::string& note : notes_of(checked)) std::cout << printable("note: " + note) << "\n";
  for (const std::string& line : settled_lines(checked.problems)) std::cout << printable(line) << "\n";
  std::cout << printable(concat(checked.path, ": no problems found\n", plan_headline(checked.run->plan), "\n"));
}

void print_refused(const CheckedConfig& checked) {
  std::cerr << printable(concat(checked.path, ": is refused\n", checked.refusal, "\n"));
  for (const std::string& note : notes_of(checked)) std::cerr << cli::note_line(note);
}

Value place_value(const Position& where) {
  Value place = Value::object();
  place.set("file", where.file);
  if (where.line > 0) place.set("line", where.line), place.set("column", where.column);
  return place;
}

// Each problem of the file, or the one text of a plan that was refused.
Value problems_value(const CheckedConfig& checked) {
  Value list = Value::array();
  for (const Problem& problem : checked.problems.list()) {
    Value one = place_value(problem.where);
    one.set("message", problem.message), one.set("code", static_cast<int64_t>(problem.code));
    list.items().push_back(std::move(one));
  }
  if (list.items().empty() && !checked.run) {
    Value one = Value::object();
    one.set("file", checked.path), one.set("message", checked.refusal);
    one.set("code", static_cast<int64_t>(checked.code));
    list.items().push_back(std::move(one));
  }
  return list;
}

Value report_of(const CheckedConfig& checked) {
  Value notes = Value::array();
  for (const std::string& note : notes_of(checked)) notes.items().push_back(note);
  Value report = Value::object();
  report.set("file", checked.path);
  report.set("verdict", checked.run ? "accepted" : "refused");
  report.set("code", static_cast<int64_t>(checked.run ? 0 : static_cast<int64_t>(checked.code)));
  report.set("problems", problems_value(checked));
  report.set("notes", std::move(notes));
  report.set("settled", settled_value(checked.problems.resolved()));
  if (checked.run) report.set("plan", plan_headline(checked.run->plan));
  return report;
}

// The code of the first file that is refused.
int check_command(const cli::Arguments& arguments) {
  int code = 0;
  Value reports = Value::array();
  const bool json = arguments.has("--json"), several = arguments.plain().size() > 1;
  for (const std::string& path : arguments.plain()) {
    const CheckedConfig checked = check_config(config_request(path, arguments));
    if (!checked.run && code == 0) code = static_cast<int>(checked.code);
    if (json) {
      reports.items().push_back(report_of(checked));
    } else if (checked.run) {
      print_accepted(checked);
    } else {
      if (!several) checked.throw_if_refused();
      print_refused(checked);
    }
  }
  if (json) std::cout << printable_json(reports.to_json(2)) << "\n";
  return code;
}

int resolve_command(const cli::Arguments& arguments) {
  const CheckedConfig checked = check_config(config_request(arguments.plain().front(), arguments));
  checked.throw_if_refused();
  for (const std::string& note : notes_of(checked)) std::cerr << cli::note_line(note);
  std::cout << printable_json(resolved_value(*checked.run, *checked.registry).to_json(2)) << "\n";
  return 0;
}

}  // namespace

int config_command(const cli::Arguments& arguments) {
  const std::string_view name = arguments.command().name;
  if (name == "config check") return check_command(arguments);
  if (name == "config resolve") return resolve_command(arguments);
  if (name == "config explain") return explain_command(arguments);
  if (name == "config schema") return schema_command(arguments);
  return diff_command(arguments);
}

}  // namespace drivetrain
