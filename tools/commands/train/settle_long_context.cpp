#include "train/settle_long_context.h"

#include "config_files/layers.h"
#include "log/log_console.h"
#include "train/plan_config.h"

namespace drivetrain {
namespace {

constexpr const char* kChosen = "run/long_context";  // from rank 0
constexpr double kMostSeconds = 600;

void apply(const Settled& run, const LongContextChoice& choice, const Registry& registry) {
  std::vector<AutoValue> settled = run.settings.settled;
  settled.insert(settled.end(), choice.settled.begin(), choice.settled.end());
  run.config = merged_configs(run.config, choice.sections);
  Problems problems;
  run.settings = read_run_settings(run.config, run.path, problems);
  run.chosen = choose_plugins(run.config, registry, run.settings.device, problems);
  problems.throw_if_any();
  run.settings.settled = std::move(settled);
}

// Between ranks: {"sections", "settled": list of [key, value, rule]}.
std::string text_of(const LongContextChoice& choice) {
  Value rows = Value::array(), text = Value::object();
  for (const AutoValue& one : choice.settled)
    rows.items().emplace_back(Value::Array{Value(one.key), Value(one.value), Value(one.rule)});
  text.set("sections", choice.sections), text.set("settled", std::move(rows));
  return text.to_json();
}

LongContextChoice choice_of(const std::string& text) {
  const Value said = parse_json(text, kChosen);
  LongContextChoice choice;
  choice.sections = *said.find("sections");
  for (const Value& row : said.find("settled")->items())
    choice.settled.push_back({{}, row.items()[0].as_string(), row.items()[1].as_string(), row.items()[2].as_string()});
  return choice;
}

// Plans are compared in silence; the one that is taken says what it has to say when the run is planned.
std::unique_ptr<PreparedRun> plan_quietly(const Value& config, const std::string& path, const Registry& registry,
                                          RankSetup setup) {
  setup.log = make_console_log({.level = LogLevel::error});
  setup.store = make_local_store();
  setup.flight = nullptr;
  return plan_config(config, path, registry, setup);
}

}  // namespace

LongContextChoice settle_long_context(const Settled& run, const Registry& registry, const RankSetup& setup,
                                      const std::optional<LongContextMachine>& machine, Problems& problems) {
  LongContextChoice choice;
  if (!run.settings.long_sequences.enabled) return choice;
  if (!machine) {
    problems.note(run.settings.long_context.where,
                  "long_context: nothing is chosen, since the memory of the run's GPUs is not known here: give "
                  "--hardware to `drivetrain plan`, or \"long_context\": {\"memory_gib\": 80}");
    return choice;
  }
  choice = choose_long_context(run.config, *machine,
                               [&](const Value& config) { return plan_quietly(config, run.path, registry, setup); });
  apply(run, choice, registry);
  for (const AutoValue& one : choice.settled) problems.resolve(one.where, one.key, one.value, one.rule);
  return choice;
}

void settle_long_context(TrainRequest& request, Problems& problems) {
  if (!request.settings.long_sequences.enabled) return;
  const RankEnvironment& env = request.setup.environment;
  const Settled run{request.config, request.config_path, request.settings, request.chosen};
  Store& store = *request.setup.store;
  const bool alone = request.plan_only || env.world_size == 1;
  if (env.rank != 0 && !alone) return apply(run, choice_of(store.get(kChosen, kMostSeconds)), *request.registry);
  const auto machine = machine_at_hand(request.settings, env);
  const LongContextChoice choice = settle_long_context(run, *request.registry, request.setup, machine, problems);
  if (!alone) store.set(kChosen, text_of(choice));
}

}  // namespace drivetrain
