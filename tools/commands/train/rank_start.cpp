#include "train/rank_start.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include <drivetrain/toolkit/host/processors.h>
#include <drivetrain/toolkit/text.h>

#include "base/rank_variables.h"
#include "config_files/places.h"
#include "device/open_device.h"
#include "log/log_console.h"
#include "memory/cpu_allocator.h"
#include "plugin_calls/plugin_call.h"
#include "shared/commands.h"
#include "shared/math_threads.h"
#include "store/socket.h"
#include "train/start_device.h"

namespace drivetrain {
namespace {

int64_t threads_of_rank(const RunSettings& settings, const RankEnvironment& env) {
  return settings.threads > 0 ? settings.threads : cores_of_rank(env);
}

// A quota is seen nowhere else: a process of a container still counts all cores of the machine.
void tell_quota(int64_t threads, const RunSettings& settings, const RankEnvironment& env, Log& log) {
  const ProcessorShare share = processor_share();
  if (!share.quota || env.local_rank != 0) return;
  const std::string has = concat("the control group has the time of ", formatted("%.3g", *share.quota), " of ",
                                 share.cores, share.cores == 1 ? " core" : " cores");
  if (static_cast<double>(threads * env.local_size) > std::max(1.0, *share.quota))
    log.warning(concat(has, ", and ", env.local_size, env.local_size == 1 ? " rank has " : " ranks have ", threads,
                       threads == 1 ? " thread" : " threads",
                       " each: threads that wait for their time make every step ", "longer"));
  else if (share.is_cut() && settings.threads == 0)
    log.info(concat(has, "; threads per rank: ", threads));
}

void set_threads(const RunSettings& settings, const RankEnvironment& env, Log& log) {
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const int64_t threads = threads_of_rank(settings, env);
  // Each is a thread with a stack of its own: more than a few per core only take memory.
  const int64_t most = std::max<int64_t>(64, 4 * cores);
  if (threads > most)
    throw fail(ErrorCode::config, "threads is ", threads, ", and this host has ", cores, " cores: ", most,
               " at most\n   leave it out, or set it to the cores that this rank may use");
  tell_quota(threads, settings, env, log);
  plan_with_threads(settings, env);
  // Signals are the main thread's, which has a stack for handlers: the threads of the pool begin here, without them.
  const SignalsElsewhere elsewhere;
  at::parallel_for(0, threads, 1, [](int64_t, int64_t) {});
}

// One of the file's problems, so that all of them are told at once.
void open_device_of(const TrainRequest& request, Problems& problems) {
  try {
    open_device(request.settings.device);
  } catch (const Error& e) {
    const Value* given = request.config.find("device");
    problems.add(given ? given->where : Position{}, e.what(), e.code());
  }
}

}  // namespace

void plan_with_threads(const RunSettings& settings, const RankEnvironment& env) {
  set_math_threads(threads_of_rank(settings, env));
}

void ignore_write_signals() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

void join_ranks(TrainRequest& request) {
  ignore_write_signals();
  request.setup.environment = read_rank_environment();
  request.terminal = isatty(STDOUT_FILENO) != 0;
  request.setup.log = make_console_log(console_settings(request.setup.environment.rank));
  work_rank().rank = request.setup.environment.rank, work_rank().world_size = request.setup.environment.world_size;
  if (request.plan_only)
    request.setup.store = make_local_store();
  else
    request.setup.store = open_store(request.setup.environment,
                                     [log = request.setup.log](const std::string& line) { log->warning(line); });
}

std::unique_ptr<Registry> choose_for(TrainRequest& request, const std::vector<std::string>& plugin_paths,
                                     Problems& problems) {
  expand_places(request.config);
  request.settings = read_run_settings(request.config, request.config_path, problems);
  if (request.plan_only)
    plan_with_threads(request.settings, request.setup.environment);
  else
    open_device_of(request, problems);
  auto registry = std::make_unique<Registry>(search_path(request.settings, plugin_paths));
  request.registry = registry.get();
  request.chosen = choose_plugins(request.config, *registry, request.settings.device, problems);
  problems.throw_if_any();
  request.settings.settled = problems.resolved();
  if (request.setup.environment.rank == 0) show_notes(problems, *request.setup.log);
  return registry;
}

void start_process(TrainRequest& request) {
  install_cpu_allocator();
  RankEnvironment& env = request.setup.environment;
  const double timeout_s = static_cast<double>(request.settings.rendezvous_timeout_s);
  enter_store(*request.setup.store, timeout_s);
  if (!env.local_known) find_local_ranks(*request.setup.store, env, timeout_s);
  start_device(request.settings.device, env.local_rank, env.local_size);
  check_own_device(*request.setup.store, env.rank, env.local_rank, env.local_size);
  set_threads(request.settings, env, *request.setup.log);
  // LibTorch's own products read it there, and so do ours.
  at::globalContext().setFloat32MatmulPrecision(request.settings.float32_matmul_precision);
  if (request.settings.flight_record)
    request.setup.flight =
        std::make_shared<FlightRecord>(env.rank, env.world_size, taken_over(RankStart::read().flight_fd));
}

}  // namespace drivetrain
