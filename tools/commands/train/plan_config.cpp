#include "train/plan_config.h"

#include "log/log_console.h"
#include "report/schedule_picture.h"
#include "train/plan_training.h"

namespace drivetrain {

RankSetup setup_of_plan(int64_t ranks) {
  RankSetup setup;
  setup.log = make_console_log({.level = LogLevel::error});
  setup.store = make_local_store();
  setup.environment.world_size = setup.environment.local_size = ranks;
  return setup;
}

std::unique_ptr<PreparedRun> plan_config(const Value& config, const std::string& path, const Registry& registry,
                                         const RankSetup& setup) {
  Problems problems;
  const RunSettings settings = read_run_settings(config, path, problems);
  std::vector<ChosenPlugin> chosen = choose_plugins(config, registry, settings.device, problems);
  problems.throw_if_any();
  auto run = plan_training(settings, std::move(chosen), registry, setup);
  add_timeline(run->plan, *run->plugins.schedule);
  return run;
}

}  // namespace drivetrain
