// `drivetrain bench checkpoint`: what saves cost a run, and how fast the store writes and reads beside the plain disk.
#include <filesystem>

#include <drivetrain/toolkit/text.h>

#include "bench/checkpoint_measure.h"
#include "bench/machine.h"
#include "bench/step_config.h"
#include "bench/table.h"
#include "config_files/load.h"
#include "plan/prepare_run.h"
#include "report/facts.h"
#include "train/rank_start.h"

namespace drivetrain {
namespace {

constexpr int64_t kWarmup = 3;

Value config_of(const BenchArguments& arguments, std::string& path, Problems& problems) {
  const bool given = !arguments.plain().empty();
  path = given ? arguments.plain().front() : "configs/bench/gpt2_124m_b4_t64.json";
  Value config = given ? load_config(path, {}, problems) : parse_json(default_step_config(), path);
  int count = 0;
  for (const std::string& set : arguments.all("--set")) apply_set(config, set, ++count, problems);
  config.set("eval_interval", 0);
  config.set("save_final", false);
  config.set("train_steps",
             CheckpointMeasure::steps_of(kWarmup, arguments.whole("--every"), arguments.whole("--rounds")));
  return config;
}

// Made by rank 0, removed with all that is in it.
class BenchFolder {
 public:
  BenchFolder(const std::string& parent, const RankEnvironment& env, Store& store) : owner_(env.rank == 0) {
    constexpr const char* kKey = "bench/checkpoint/folder";
    if (!owner_) {
      path_ = store.get(kKey, 60);
      return;
    }
    std::string name = std::filesystem::absolute(parent.empty() ? "." : parent) / ".drivetrain-bench-XXXXXX";
    if (!::mkdtemp(name.data()))
      throw fail(ErrorCode::io, "bench checkpoint: cannot make a folder in ", parent.empty() ? "." : parent,
                 "\n   give one that this user may write: --folder FOLDER");
    path_ = name;
    if (env.world_size > 1) store.set(kKey, path_);
  }
  ~BenchFolder() {
    std::error_code ignored;
    if (owner_) std::filesystem::remove_all(path_, ignored);
  }
  BenchFolder(const BenchFolder&) = delete;
  BenchFolder& operator=(const BenchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  const bool owner_;
  std::string path_;
};

std::string speed_text(double bytes, double seconds) { return formatted("%.2f GB/s", bytes / seconds / 1e9); }

void report_times(const CheckpointTimes& times, int64_t interval, BenchReport& report) {
  const auto bytes = static_cast<double>(times.bytes);
  const Spread without = spread_of(times.without), with = spread_of(times.with), stall = spread_of(times.stalls);
  const Spread write = spread_of(times.write), direct = spread_of(times.direct), cached = spread_of(times.cached);
  const Spread load = spread_of(times.load), read = spread_of(times.read);
  const double beyond = times.peak_after - times.peak_before - times.snapshot_bytes;
  Value& json = report.json;
  json.set("steps_per_save", interval), json.set("bytes", static_cast<int64_t>(times.bytes));
  const std::pair<const char*, const Spread&> spreads[] = {
      {"block_without_s", without}, {"block_with_s", with},     {"stall_s", stall}, {"write_s", write},
      {"plain_direct_s", direct},   {"plain_cached_s", cached}, {"load_s", load},   {"plain_read_s", read}};
  for (const auto& [name, spread] : spreads) json.set(name, spread.to_value());
  json.set("stall_percent", 100 * stall.median / without.median);
  json.set("block_percent", 100 * (with.median / without.median - 1));
  json.set("memory_beyond_snapshot_bytes", beyond);
  report.text +=
      concat("state of ", formatted("%.1f", bytes / 1e6), " MB; a save every ", interval, " steps; blocks in turns\n");
  TextTable steps({concat("block of ", interval, " steps"), "min", "median"});
  steps.row({"without a save", seconds_text(without.min), seconds_text(without.median)});
  steps.row({"with a save beside it", seconds_text(with.min), seconds_text(with.median)});
  steps.row({"  training stood still", seconds_text(stall.min), seconds_text(stall.median)});
  TextTable disk({"while training stands still", "least s", "median", "at least s"});
  const std::pair<const char*, const Spread&> rows[] = {{"store's write and commit", write},
                                                        {"plain write, O_DIRECT", direct},
                                                        {"plain write, page cache and fsync", cached},
                                                        {"store's load", load},
                                                        {"plain read, page cache", read}};
  for (const auto& [name, spread] : rows)
    disk.row({name, seconds_text(spread.min), seconds_text(spread.median), speed_text(bytes, spread.min)});
  report.text += steps.text() +
                 formatted("standing still: %.2f %% of the time; blocks with a save are %.2f %% longer\n",
                           100 * stall.median / without.median, 100 * (with.median / without.median - 1)) +
                 "\n" + disk.text() + formatted("memory beyond the snapshot: %.1f MB\n", beyond / 1e6);
}

}  // namespace

BenchReport bench_checkpoint(const BenchArguments& arguments) {
  TrainRequest request;
  join_ranks(request);
  Problems problems;
  request.config = config_of(arguments, request.config_path, problems);
  const auto registry = choose_for(request, arguments.all("--plugin-path"), problems);
  request.setup.log = report_log(request.setup.environment.rank);
  start_process(request);
  const RankEnvironment& env = request.setup.environment;
  Run run(std::move(*prepare_run(request.settings, request.chosen, *registry, request.setup, Purpose::train)));
  if (!run.plugins.checkpoint_store)
    throw fail(ErrorCode::config,
               "bench checkpoint: the config switches checkpoint_store off\n   leave it out, or name one");
  meet_ranks(request, run, resolved_facts(run.plan, *registry));
  const BenchMachine machine = describe_machine();  // every rank waits here, so that nobody is seen at work
  const int64_t interval = arguments.whole("--every");
  BenchReport report = report_on("checkpoint", machine);
  try {
    const BenchFolder folder(arguments.text("--folder"), env, *request.setup.store);
    build_run(run);
    report.json.set("ranks", env.world_size);
    report_times(CheckpointMeasure(run, env, folder.path(), kWarmup, interval, arguments.whole("--rounds")).measure(),
                 interval, report);
  } catch (const std::exception& e) {  // the others learn the reason at once instead of waiting for a time-out
    const std::string reason = e.what();
    if (run.plugins.communicator)
      run.plugins.communicator->abort(concat("rank ", env.rank, " stopped: ", reason.substr(0, reason.find('\n'))));
    throw;
  }
  report.silent = env.rank != 0;
  return report;
}

}  // namespace drivetrain
