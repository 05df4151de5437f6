#include "planner/plan_tables.h"

#include <filesystem>
#include <map>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "config_files/load.h"
#include "planner/fit_report.h"
#include "planner/scaling_chart.h"
#include "planner/table_report.h"
#include "shared/commands.h"
#include "train/plan_config.h"
#include "train/run_folder.h"

namespace drivetrain {
namespace {

// What plans rows: one registry, and each machine and profile read once.
class RowPlanner {
 public:
  explicit RowPlanner(const cli::Arguments& arguments)
      : folder_(data_folder("published")), arguments_(arguments), sets_(arguments.all("--set")) {
    RunSettings settings;
    registry_ = std::make_unique<Registry>(search_path(settings, arguments.all("--plugin-path")));
  }

  const RowMachine& machine_of(const PublishedRow& row) {
    const auto known = machines_.find(row.profile);
    if (known != machines_.end()) return known->second;
    RowMachine machine;
    machine.profile = read_profile(row.profile, folder_);
    const bool asked = arguments_.has("--hardware");
    machine.hardware =
        read_hardware(asked ? arguments_.text("--hardware") : machine.profile.hardware, data_folder("hardware"));
    return machines_.emplace(row.profile, std::move(machine)).first->second;
  }

  Forecast plan(const PublishedRow& row, const RowMachine& machine) const {
    Problems problems;
    Value config = row.config;
    int number = 0;
    for (const auto* list : {&machine.profile.sets, &sets_})
      for (const std::string& set : *list) apply_set(config, set, ++number, problems);
    problems.throw_if_any();
    try {
      const auto run = plan_config(config, folder_ + "/tables.json", *registry_, setup_of_plan(row.ranks));
      return forecast(*run, machine.hardware, &machine.profile);
    } catch (const Error& e) {
      throw fail(e.code(), "row ", shown(row.label), " of ", folder_, "/tables.json: ", e.what());
    }
  }

 private:
  const std::string folder_;
  const cli::Arguments& arguments_;
  const std::vector<std::string> sets_;
  std::unique_ptr<Registry> registry_;
  std::map<std::string, RowMachine> machines_;
};

void refuse_options(const cli::Arguments& arguments) {
  const auto refuse = [&](const cli::OptionName& option, const char* name, const char* remedy) {
    if (arguments.has(option))
      throw fail(ErrorCode::config, "plan: ", name, " has no meaning beside --table\n   ", remedy);
  };
  refuse("-n", "-n", "each row of a table says its ranks; leave it out, or plan the row's config (--json prints it)");
  refuse("--profile", "--profile", "rows are planned under the profile of their table's system; leave it out");
  refuse("--deepspeed", "--deepspeed",
         "each row is a whole config; leave it out, or change keys of all rows with --set");
}

}  // namespace

std::string data_folder(const char* name) {
  namespace fs = std::filesystem;
  return (fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "share" / "drivetrain" / name).string();
}

std::string plan_tables(const std::string& name, const cli::Arguments& arguments) {
  refuse_options(arguments);
  const std::string folder = data_folder("published");
  const bool all = name == "all";
  if (all && arguments.has("--svg"))
    throw fail(ErrorCode::config,
               "plan: --svg draws the rows of one table, not of all\n   name it: ", join(published_names(folder)));
  RowPlanner planner(arguments);
  const MachineOfRow machine_of = [&](const PublishedRow& row) -> const RowMachine& { return planner.machine_of(row); };
  const PlanRow plan = [&](const PublishedRow& row, const RowMachine& machine) { return planner.plan(row, machine); };
  Value list = Value::array();
  std::string text;
  FitReport fit;
  for (const std::string& one : all ? published_names(folder) : std::vector{name}) {
    const PublishedTable table = read_published(one, folder);
    const TableResult result = plan_rows(table, machine_of, plan);
    fit.add(result, machine_of);
    if (arguments.has("--svg")) write_text_file(arguments.text("--svg"), scaling_chart(table, result));
    text += table_text(table, result, machine_of) + (all ? "\n" : "");
    list.items().push_back(table_value(table, result, machine_of));
  }
  if (!arguments.has("--json")) return printable(text + (all ? fit.text() : fit.constants_text()));
  if (!all) return printable_json(list.items().front().to_json(2)) + "\n";
  Value value = Value::object();
  value.set("tables", std::move(list)), value.set("fit", fit.to_value());
  return printable_json(value.to_json(2)) + "\n";
}

}  // namespace drivetrain
