// `drivetrain config check|resolve`: the JSON and what it asks for, without training.
#include <iostream>

#include "app/commands.h"
#include "app/plan_training.h"
#include "config/layers.h"
#include "config/load.h"
#include "config/places.h"
#include "config/printable.h"
#include "plan/min_world_size.h"
#include "report/facts.h"
#include "report/plan_text.h"

namespace drivetrain {
namespace {

// All three batch sizes fix the number of data-parallel ranks; otherwise one.
int64_t data_parallel_ranks(const RunSettings& s) {
  if (!s.train_batch_size || !s.micro_batch_size || !s.accumulation) return 1;
  const int64_t per_rank = *s.micro_batch_size * *s.accumulation;
  return per_rank > 0 && *s.train_batch_size % per_rank == 0 ? *s.train_batch_size / per_rank : 1;
}

}  // namespace

int config_command(const cli::Arguments& arguments) {
  const std::string& path = arguments.plain().front();
  Problems problems;
  Value config = load_config(path, arguments.all("--set"), problems, arguments.all("--deepspeed"));
  if (const std::string half = missing_half(config, path); !half.empty()) problems.add(config.where, half);
  expand_places(config);
  const RunSettings settings = read_run_settings(config, path, problems);
  const Registry registry(search_path(settings, arguments.all("--plugin-path")));
  std::vector<ChosenPlugin> chosen = choose_plugins(config, registry, settings.device, problems);
  problems.throw_if_any();

  RankSetup setup;
  setup.log = make_console_log(console_settings(0));
  show_notes(problems, *setup.log);
  setup.store = make_local_store();
  setup.environment.world_size =
      arguments.has("-n") ? arguments.whole("-n")
                          : data_parallel_ranks(settings) * min_world_size(settings, chosen, registry, setup);
  setup.environment.local_size = setup.environment.world_size;
  const auto run = plan_training(settings, std::move(chosen), registry, setup);
  if (arguments.command().name == "config resolve") {
    std::cout << resolved_value(*run, registry).to_json(2) << "\n";
  } else {
    std::cout << printable(concat(path, ": no problems found\n", plan_headline(run->plan), "\n"));
  }
  return 0;
}

}  // namespace drivetrain
