// `drivetrain train`: what belongs to the process - arguments, environment, signals, threads - around train_rank.
#include <ATen/Parallel.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <thread>

#include "app/commands.h"
#include "app/config_text.h"
#include "app/train_run.h"
#include "config/load.h"
#include "memory/cpu_allocator.h"
#include "observe/log_console.h"

namespace drivetrain {
namespace {

std::atomic<int> stop_signal = 0;

extern "C" void remember_signal(int signal) { stop_signal = signal; }

// The first SIGINT or SIGTERM ends the run after its step; a second one kills, as any does before the ranks have met.
void watch_signals() {
  struct sigaction action = {};
  action.sa_handler = remember_signal;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

// A reader that went away and a full quota show as write errors, not as a silent death.
void ignore_write_signals() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

void set_threads(const RunSettings& settings, const RankEnvironment& env) {
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const int64_t threads = settings.threads > 0 ? settings.threads : std::max<int64_t>(1, cores / env.local_size);
  at::set_num_threads(static_cast<int>(threads));
}

}  // namespace

int train_command(const std::vector<std::string>& arguments) {
  const TrainArguments args = parse_train_arguments(arguments);
  RankEnvironment env = read_rank_environment();
  TrainRequest request;
  request.terminal = isatty(STDOUT_FILENO) != 0;
  request.setup.log = make_console_log(console_settings(env.rank));
  request.config_path = args.config;
  request.stop = &stop_signal;
  request.on_start = watch_signals;

  Problems problems;
  request.config = load_config(args.config, args.sets, problems);
  expand_places(request.config);
  request.settings = read_run_settings(request.config, args.config, problems);
  const Registry registry(search_path(request.settings, args.plugin_paths));
  request.registry = &registry;
  request.chosen = choose_plugins(request.config, registry, request.settings.device, problems);
  problems.throw_if_any();
  if (env.rank == 0) show_notes(problems, *request.setup.log);

  request.setup.environment = env;
  if (args.plan) {
    request.setup.store = make_local_store();
    std::cout << describe_plan(request);
    return 0;
  }
  ignore_write_signals();
  install_cpu_allocator();
  const double timeout_s = static_cast<double>(request.settings.rendezvous_timeout_s);
  request.setup.store = make_store(env, timeout_s);
  if (!env.local_known) find_local_ranks(*request.setup.store, env, timeout_s);
  request.setup.environment = env;
  set_threads(request.settings, env);
  const TrainOutcome outcome = train_rank(request);
  if (outcome.stopped) {
    const int signal = stop_signal.load();
    request.setup.log->warning(concat("stopped after step ", outcome.last_step, " of ", request.settings.train_steps,
                                      signal ? concat(" by signal ", signal, " (", strsignal(signal), ")")
                                             : std::string(" because another rank was asked to stop")));
    return 128 + (signal ? signal : SIGTERM);
  }
  return 0;
}

}  // namespace drivetrain
