// `drivetrain plan`: memory and time of a run on a machine, before it; the fastest way that fits; published tables.
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "cli/error_line.h"
#include "planner/forecast.h"
#include "planner/plan_tables.h"
#include "planner/search.h"
#include "predict/published.h"
#include "report/plan_text.h"
#include "report/schedule_picture.h"
#include "train/checked_config.h"
#include "train/plan_config.h"

namespace drivetrain {
namespace {

constexpr const char* kSearch =
#include "plan_search.inc"
    ;

int print(const std::string& text) {
  std::cout << text << std::flush;
  return 0;
}

// What long_context chose, what the file says without effect, what is expensive.
std::vector<std::string> all_notes(const CheckedConfig& checked) {
  std::vector<std::string> notes;
  for (const AutoValue& one : checked.problems.resolved())
    if (one.rule.starts_with("long_context")) notes.push_back(concat(one.key, ": ", one.value, " (", one.rule, ")"));
  const std::vector<std::string> further = notes_of(checked);
  notes.insert(notes.end(), further.begin(), further.end());
  return notes;
}

// On stderr, as far as `shown` has it not.
void show_notes(const CheckedConfig& checked, const std::vector<std::string>& shown) {
  for (const std::string& note : all_notes(checked))
    if (std::find(shown.begin(), shown.end(), note) == shown.end()) std::cerr << cli::note_line(note);
}

int print_json(Value value, const CheckedConfig& checked) {
  Value notes = Value::array();
  for (const std::string& note : all_notes(checked)) notes.items().push_back(note);
  value.set("notes", std::move(notes));
  return print(printable_json(value.to_json(2)) + "\n");
}

// One line of a terminal, which goes when the search has ended.
void show_progress(size_t tried, size_t all) {
  if (!isatty(STDERR_FILENO)) return;
  std::cerr << (tried == all ? std::string("\r\033[K") : concat("\rplanned ", tried, " of ", all, " mixes"))
            << std::flush;
}

int plan_search(const CheckedConfig& base, const Hardware& hardware, const cli::Arguments& arguments) {
  const RunPlan& plan = base.run->plan;
  const std::string file = arguments.text("--space");
  const SearchSpace space =
      search_space(file.empty() ? parse_json(kSearch, "configs/planner/search.json") : read_json_file(file),
                   plan.run.world_size, hardware.ranks_per_host, plan.model.mixture.experts);
  const RankSetup setup = setup_of_plan(plan.run.world_size);
  const SearchResult result = search(
      space, base.config, plan.batch.train_batch_size, plan.run.world_size, hardware,
      [&](const Value& config) { return plan_config(config, base.path, *base.registry, setup); }, show_progress);
  if (arguments.has("--json")) return print_json(search_value(result, hardware), base);
  show_notes(base, {});
  return print(printable(search_text(result)));
}

std::string profile_text(const std::optional<Profile>& profile) {
  if (!profile) return "";
  std::string text = "as by profile " + profile->name + ":\n";
  for (const std::string& line : profile->assumptions) text += "  - " + line + "\n";
  return text;
}

int plan_run_of(const CheckedConfig& checked, const std::optional<Hardware>& hardware,
                const std::optional<Profile>& profile, bool json) {
  add_timeline(checked.run->plan, *checked.run->plugins.schedule);
  const RunPlan& plan = checked.run->plan;
  if (!hardware) {
    if (json) return print_json(plan.to_json(), checked);
    show_notes(checked, plan.notes);
    return print(
        printable(plan_text(plan) + "no --hardware: how long a step takes, and whether it fits, is not known\n"));
  }
  const Forecast planned = forecast(*checked.run, *hardware, profile ? &*profile : nullptr);
  if (!json) {
    show_notes(checked, {});
    return print(printable(plan_headline(plan) + "\n" + profile_text(profile) +
                           forecast_text(plan, planned, *hardware) + traffic_text(plan) + host_traffic_text(plan)));
  }
  Value value = plan.to_json();
  value.set("forecast", forecast_value(planned, *hardware));
  if (profile) value.set("profile", profile->name);
  return print_json(std::move(value), checked);
}

}  // namespace

int plan_command(const cli::Arguments& arguments) {
  const bool json = arguments.has("--json");
  if (arguments.has("--table")) {
    if (!arguments.plain().empty())
      throw fail(ErrorCode::config, "plan: takes a config or --table, found both: ", shown(arguments.plain().front()));
    return print(plan_tables(arguments.text("--table"), arguments));
  }
  if (arguments.plain().empty())
    throw fail(ErrorCode::config, "plan: needs a config, or --table NAME; tables are ",
               join(published_names(data_folder("published"))));
  std::optional<Profile> profile;
  if (arguments.has("--profile")) profile = read_profile(arguments.text("--profile"), data_folder("published"));
  std::optional<Hardware> hardware;
  const std::string machine = arguments.has("--hardware") ? arguments.text("--hardware")
                              : profile                   ? profile->hardware
                                                          : "";
  if (profile && machine.empty())
    throw fail(ErrorCode::config, "plan: profile ", shown(profile->name), " names no machine\n   add --hardware");
  if (!machine.empty()) hardware = read_hardware(machine, data_folder("hardware"));
  ConfigRequest request = config_request(arguments.plain().front(), arguments);
  if (hardware) request.machine = {.device = capacity_of(*hardware), .ranks_per_host = hardware->ranks_per_host};
  if (profile) request.sets.insert(request.sets.begin(), profile->sets.begin(), profile->sets.end());
  const CheckedConfig checked = check_config(request);
  checked.throw_if_refused();
  return arguments.has("--search") ? plan_search(checked, *hardware, arguments)
                                   : plan_run_of(checked, hardware, profile, json);
}

}  // namespace drivetrain
