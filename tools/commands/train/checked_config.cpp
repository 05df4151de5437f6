#include "train/checked_config.h"

#include <algorithm>

#include "config_files/layers.h"
#include "config_files/load.h"
#include "config_files/places.h"
#include "plugin_calls/plugin_call.h"
#include "report/shape_advice.h"
#include "train/min_world_size.h"
#include "train/plan_training.h"
#include "train/rank_start.h"
#include "train/settle_long_context.h"

namespace drivetrain {
namespace {

// Keeps what the plan warns of.
class WarningsLog final : public Log {
 public:
  explicit WarningsLog(std::vector<std::string>& lines) : lines_(lines) {}
  void write(LogLevel level, const std::string& line) override {
    if (level >= LogLevel::warning) lines_.push_back(line);
  }
  void progress(const std::string&) override {}

 private:
  std::vector<std::string>& lines_;
};

// All three batch sizes fix the number of data-parallel ranks; otherwise one.
int64_t data_parallel_ranks(const RunSettings& s) {
  if (!s.train_batch_size || !s.micro_batch_size || !s.accumulation) return 1;
  const int64_t per_rank = *s.micro_batch_size * *s.accumulation;
  return per_rank > 0 && *s.train_batch_size % per_rank == 0 ? *s.train_batch_size / per_rank : 1;
}

void read_checked(CheckedConfig& checked, const ConfigRequest& request) {
  Problems& problems = checked.problems;
  checked.config = load_config(checked.path, request.sets, problems, request.below);
  expand_places(checked.config);
  checked.settings = read_run_settings(checked.config, checked.path, problems);
}

// Of a file that leaves out half of a run, what it has and not what it lacks: that is said by the one problem.
void keep_own_problems(CheckedConfig& checked, const Problem& half) {
  Problems own;
  own.add(half.where, half.message);
  for (const Problem& p : checked.problems.list())
    if (p.where.line > 0 && p.where.text() != checked.config.where.text()) own.add(p.where, p.message, p.code);
  for (const Problem& note : checked.problems.notes()) own.note(note.where, note.message);
  for (const AutoValue& s : checked.problems.resolved()) own.resolve(s.where, s.key, s.value, s.rule);
  checked.problems = own;
}

std::optional<LongContextMachine> machine_for(const ConfigRequest& request, const RunSettings& settings,
                                              const RankEnvironment& env) {
  if (!request.machine || settings.long_sequences.memory_gib > 0) return machine_at_hand(settings, env);
  LongContextMachine machine = *request.machine;
  machine.ranks = env.world_size, machine.ranks_per_host = std::min(machine.ranks, machine.ranks_per_host);
  return machine;
}

void plan_checked(CheckedConfig& checked, std::vector<ChosenPlugin> chosen, const ConfigRequest& request) {
  const int64_t ranks = request.ranks;
  RankSetup setup;
  // The plan outlives this call and the object that is returned may move, so the log has lines of its own.
  auto lines = std::make_shared<std::vector<std::string>>();
  setup.log = std::shared_ptr<Log>(new WarningsLog(*lines), [lines](Log* log) { delete log; });
  setup.store = make_local_store();
  setup.environment.world_size = ranks > 0 ? ranks
                                           : data_parallel_ranks(checked.settings) *
                                                 min_world_size(checked.settings, chosen, *checked.registry, setup);
  setup.environment.local_size = setup.environment.world_size;
  lines->clear();  // what was said to count the ranks is said again
  plan_with_threads(checked.settings, setup.environment);
  settle_long_context({checked.config, checked.path, checked.settings, chosen}, *checked.registry, setup,
                      machine_for(request, checked.settings, setup.environment), checked.problems);
  checked.run = plan_training(checked.settings, std::move(chosen), *checked.registry, setup);
  checked.registry->log_notes(*setup.log);
  checked.warnings = *lines;
}

}  // namespace

void CheckedConfig::throw_if_refused() const {
  if (!run) throw Error(code, refusal);
}

ConfigRequest config_request(const std::string& path, const cli::Arguments& arguments) {
  return {path, arguments.all("--set"), arguments.all("--deepspeed"), arguments.all("--plugin-path"),
          arguments.has("-n") ? arguments.whole("-n") : 0};
}

CheckedConfig check_config(const ConfigRequest& request) {
  CheckedConfig checked;
  checked.path = request.path;
  try {
    read_checked(checked, request);
    checked.registry = std::make_unique<Registry>(search_path(checked.settings, request.plugin_paths));
    auto chosen = choose_plugins(checked.config, *checked.registry, checked.settings.device, checked.problems);
    if (const std::string half = missing_half(checked.config, request.path); !half.empty())
      keep_own_problems(checked, {checked.config.where, half});
    checked.problems.throw_if_any();
    checked.settings.settled = checked.problems.resolved();
    plan_checked(checked, std::move(chosen), request);
  } catch (const Error& e) {
    checked.code = e.code(), checked.refusal = e.what();
  }
  return checked;
}

std::vector<std::string> notes_of(const CheckedConfig& checked) {
  std::vector<std::string> lines;
  for (const Problem& note : checked.problems.notes()) lines.push_back(concat(note.where.text(), " ", note.message));
  lines.insert(lines.end(), checked.warnings.begin(), checked.warnings.end());
  if (!checked.run) return lines;
  lines.insert(lines.end(), checked.run->plan.notes.begin(), checked.run->plan.notes.end());
  const std::string optimizer = checked.run->plan.id_of(Optimizer::kKind);
  const std::string difference = plugin_call({optimizer, "difference_note"}, [&] {
    return checked.run->plugins.optimizer->difference_note(checked.run->params_of_optimizer());
  });
  if (!difference.empty()) lines.push_back(difference);
  if (checked.settings.device != "cpu")
    for (std::string& line : shape_advice(shape_facts(*checked.run))) lines.push_back(std::move(line));
  return lines;
}

}  // namespace drivetrain
