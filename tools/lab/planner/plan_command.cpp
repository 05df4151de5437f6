// `drivetrain plan`: memory and time of a run on a machine, before it; the fastest way that fits; published tables.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "planner/forecast.h"
#include "planner/search.h"
#include "predict/published_report.h"
#include "report/plan_text.h"
#include "train/checked_config.h"
#include "train/plan_training.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSearch =
#include "plan_search.inc"
    ;

// Beside the program, here as where it is installed.
std::string data_folder(const char* name) {
  return (fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "share" / "drivetrain" / name).string();
}

int print(const std::string& text) {
  std::cout << text << std::flush;
  return 0;
}

int plan_table(const std::string& name, bool json) {
  const std::string folder = data_folder("published");
  const std::vector<std::string> names = name == "all" ? published_names(folder) : std::vector{name};
  Value list = Value::array();
  for (const std::string& one : names) {
    const PublishedTable table = read_published(one, folder, data_folder("hardware"));
    const TableResult result = predict_table(table);
    if (json)
      list.items().push_back(table_value(table, result));
    else
      std::cout << printable(table_text(table, result)) << (names.size() > 1 ? "\n" : "");
  }
  if (!json) return print("");
  return print(printable_json((name == "all" ? list : list.items().front()).to_json(2)) + "\n");
}

// What the file says without effect, what is expensive. On stderr, as far as `shown` has it not.
void show_notes(const CheckedConfig& checked, const std::vector<std::string>& shown) {
  for (const std::string& note : notes_of(checked))
    if (std::find(shown.begin(), shown.end(), note) == shown.end()) std::cerr << printable("note: " + note) << "\n";
}

int print_json(Value value, const CheckedConfig& checked) {
  Value notes = Value::array();
  for (const std::string& note : notes_of(checked)) notes.items().push_back(note);
  value.set("notes", std::move(notes));
  return print(printable_json(value.to_json(2)) + "\n");
}

void add_bubble(PreparedRun& run) { add_timeline(run.plan, *run.plugins.schedule); }

// What config_of made, planned with the plugins that are open already.
std::unique_ptr<PreparedRun> plan_config(const Value& config, const CheckedConfig& base, const RankSetup& setup) {
  Problems problems;
  const RunSettings settings = read_run_settings(config, base.path, problems);
  std::vector<ChosenPlugin> chosen = choose_plugins(config, *base.registry, settings.device, problems);
  problems.throw_if_any();
  auto run = plan_training(settings, std::move(chosen), *base.registry, setup);
  add_bubble(*run);
  return run;
}

int plan_search(const CheckedConfig& base, const Hardware& hardware, const cli::Arguments& arguments) {
  const RunPlan& plan = base.run->plan;
  const std::string file = arguments.text("--space");
  const SearchSpace space =
      search_space(file.empty() ? parse_json(kSearch, "configs/planner/search.json") : read_json_file(file),
                   plan.run.world_size, hardware.ranks_per_host, plan.model.mixture.experts);
  RankSetup setup;
  setup.log = make_console_log({.level = LogLevel::error});
  setup.store = make_local_store();
  setup.environment.world_size = setup.environment.local_size = plan.run.world_size;
  const SearchResult result = search(space, base.config, plan.batch.train_batch_size, plan.run.world_size, hardware,
                                     [&](const Value& config) { return plan_config(config, base, setup); });
  if (arguments.has("--json")) return print_json(search_value(result, hardware), base);
  show_notes(base, {});
  return print(printable(search_text(result)));
}

int plan_run_of(const CheckedConfig& checked, const std::optional<Hardware>& hardware, bool json) {
  add_bubble(*checked.run);
  const RunPlan& plan = checked.run->plan;
  if (!hardware) {
    if (json) return print_json(plan.to_json(), checked);
    show_notes(checked, plan.notes);
    return print(
        printable(plan_text(plan) + "no --hardware: how long a step takes, and whether it fits, is not known\n"));
  }
  const Forecast planned = forecast(*checked.run, *hardware);
  if (!json) {
    show_notes(checked, {});
    return print(printable(plan_headline(plan) + "\n" + forecast_text(plan, planned, *hardware) + traffic_text(plan) +
                           host_traffic_text(plan)));
  }
  Value value = plan.to_json();
  value.set("forecast", forecast_value(planned, *hardware));
  return print_json(std::move(value), checked);
}

}  // namespace

int plan_command(const cli::Arguments& arguments) {
  const bool json = arguments.has("--json");
  if (arguments.has("--table")) {
    if (!arguments.plain().empty())
      throw fail(ErrorCode::config, "plan: takes a config or --table, found both: ", shown(arguments.plain().front()));
    return plan_table(arguments.text("--table"), json);
  }
  if (arguments.plain().empty())
    throw fail(ErrorCode::config, "plan: needs a config, or --table NAME; tables are ",
               join(published_names(data_folder("published"))));
  std::optional<Hardware> hardware;
  if (arguments.has("--hardware")) hardware = read_hardware(arguments.text("--hardware"), data_folder("hardware"));
  const CheckedConfig checked = check_config(config_request(arguments.plain().front(), arguments));
  checked.throw_if_refused();
  return arguments.has("--search") ? plan_search(checked, *hardware, arguments) : plan_run_of(checked, hardware, json);
}

}  // namespace drivetrain
