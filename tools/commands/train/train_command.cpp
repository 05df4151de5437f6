// `drivetrain train`: what belongs to the process - arguments, environment, signals, threads - around train_rank.
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <iostream>

#include "base/printable.h"
#include "cli/error_line.h"
#include "config_files/layers.h"
#include "config_files/load.h"
#include "shared/commands.h"
#include "train/hook_watch.h"
#include "train/rank_start.h"
#include "train/restart_points.h"
#include "train/settle_long_context.h"

namespace drivetrain {
namespace {

std::atomic<int> stop_signal = 0;

extern "C" void remember_signal(int signal) { stop_signal = signal; }

std::atomic<int> flight_questions = 0;

extern "C" void note_question(int) { flight_questions.fetch_add(1); }

constexpr int kRequeue = 75;  // EX_TEMPFAIL: the same command goes on where this one stopped

// On the stack that the program has set aside: oneDNN's generated products for AVX2 use memory of the heap as their
// stack, and a handler that runs there writes over whatever lies below it.
constexpr int kHandlerFlags = SA_RESTART | SA_ONSTACK;

// The first SIGINT, SIGTERM, SIGUSR1 or SIGHUP ends the run after its step; a second one kills, as any does before the
// ranks have met. SIGHUP that is ignored stays so: nohup keeps its meaning.
void watch_signals() {
  struct sigaction action = {}, hangup = {};
  action.sa_handler = remember_signal;
  action.sa_flags = kHandlerFlags | static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaction(signal, &action, nullptr);
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

// SIGUSR2 changes nothing: the ranks say where they are.
void watch_questions() {
  struct sigaction action = {};
  action.sa_handler = note_question;
  action.sa_flags = kHandlerFlags;
  sigaction(SIGUSR2, &action, nullptr);
}

// A plugin hangs in a call of this rank: nothing of the rank can be ended in order. The others learn it from the
// launcher or from the closed connection.
void end_for_hook(const TrainRequest& request, const std::string& call) {
  const std::string text = concat("in ", call, ": has not returned for ", request.settings.hook_timeout_s,
                                  " s (hook_timeout_s)\n   the plugin hangs there: leave it out, or mend it; if it "
                                  "needs so long, raise hook_timeout_s");
  note_in_file(*request.setup.log, "error: " + text);
  std::cout.flush();
  std::cerr << cli::error_line(text) << std::flush;
  _exit(static_cast<int>(ErrorCode::plugin));
}

int train(const TrainArguments& args, TrainRequest& request, const std::function<void()>& tell_done) {
  Problems problems;
  request.config = load_config(args.config, args.sets, problems, args.below);
  if (const std::string half = missing_half(request.config, args.config); !half.empty())
    throw fail(ErrorCode::config, args.config, "  ", half);
  request.config_path = args.config;
  const std::unique_ptr<Registry> registry = choose_for(request, args.plugin_paths, problems);
  // Here and not for every command that chooses plugins: benchmarks print tables and objects of their own.
  for (const std::string& line : settled_lines(problems))
    if (!args.plan) request.setup.log->info(line);
  if (args.plan) {
    settle_long_context(request, problems);
    const std::string plan = describe_plan(request, {args.json, args.svg});
    for (const std::string& line : settled_lines(problems))
      if (!args.json) std::cout << printable(line) << "\n";
    std::cout << (args.json ? plan : printable(plan));
    return 0;
  }
  start_process(request);
  Problems chosen;
  settle_long_context(request, chosen);
  for (const std::string& line : settled_lines(chosen)) request.setup.log->info(line);
  const HookWatch watch(static_cast<double>(request.settings.hook_timeout_s),
                        [&](const std::string& call) { end_for_hook(request, call); });
  const TrainOutcome outcome = train_rank(request);
  if (outcome.stopped) {
    const int signal = outcome.signal;
    request.setup.log->warning(concat(
        "stopped after step ", outcome.last_step, " of ", request.settings.train_steps,
        stop_signal.load() ? "" : ", as another rank was asked to,", " by signal ", signal, " (", strsignal(signal),
        ")", outcome.saved.empty() ? "" : concat("; the same command goes on from checkpoint ", outcome.saved)));
    return outcome.saved.empty() || signal == SIGINT ? 128 + signal : kRequeue;
  }
  tell_done();
  return 0;
}

}  // namespace

int train_command(const cli::Arguments& arguments) {
  const TrainArguments args = train_arguments(arguments);
  TrainRequest request;
  request.stop = &stop_signal, request.flight_asked = &flight_questions;
  request.on_start = watch_signals;
  watch_questions();
  request.plan_only = args.plan;
  request.check_plugins = args.check_plugins;
  request.resume = read_resume(args.resume);
  const std::function<void()> tell_done = connect_launcher(request);
  join_ranks(request);
  return telling_others(*request.setup.store, request.setup.environment,
                        [&] { return train(args, request, tell_done); });
}

}  // namespace drivetrain
