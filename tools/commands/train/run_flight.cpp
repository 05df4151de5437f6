#include "train/run_flight.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include <drivetrain/error.h>

namespace drivetrain {
namespace fs = std::filesystem;
namespace {

constexpr const char* kRun = "run/flight";
constexpr double kRunMayTakeS = 5;  // rank 0 has set it before the folder was taken

// Tells the records of one run from those of another.
uint64_t new_run() {
  uint64_t run = 0;
  if (getrandom(&run, sizeof run, 0) != static_cast<ssize_t>(sizeof run)) run = static_cast<uint64_t>(::getpid());
  return run | 1;  // 0 is none
}

bool holds_record_of(const std::string& path, uint64_t run) {
  try {
    return read_record(path).run == run;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::string flight_file(const std::string& output_dir, int64_t rank) {
  char name[32];
  std::snprintf(name, sizeof name, "rank_%04lld", static_cast<long long>(rank));
  return (fs::path(output_dir) / kFlightFolder / name).string();
}

RunFlight::RunFlight(const TrainRequest& request)
    : record_(request.setup.flight),
      log_(request.setup.log),
      store_(request.setup.store),
      environment_(request.setup.environment),
      on_host_(request.settings.device == "cpu") {
  if (!record_) return;
  const RankEnvironment& env = request.setup.environment;
  FlightWatchParts parts;
  parts.record = record_, parts.store = request.setup.store, parts.log = log_;
  parts.first_of_host = env.local_rank == 0 || env.rank == 1;
  parts.stall_s = request.settings.stall_report_s;
  parts.asked = request.flight_asked;
  parts.on_different_calls = [this](const std::string& reason) {
    if (Communicator* const communicator = communicator_) communicator->abort(reason);
  };
  watch_ = std::make_unique<FlightWatch>(std::move(parts));
}

void RunFlight::count_times() {
  if (record_ && on_host_) times_.emplace();
}

Value RunFlight::times() {
  if (!times_) return {};
  Value value = times_->to_value();
  times_.reset();
  return value;
}

void RunFlight::take_folder(const std::string& output_dir) {
  if (!record_) return;
  const uint64_t run = new_run();
  record_->belongs_to(run, output_dir);
  std::error_code ignored;
  const fs::path folder = fs::path(output_dir) / kFlightFolder;
  const bool may_clear = !fs::is_symlink(folder, ignored);
  for (auto at = fs::directory_iterator(folder, ignored); may_clear && !ignored && at != fs::directory_iterator();
       at.increment(ignored))
    if (at->path().filename().string().starts_with("rank_")) fs::remove(at->path(), ignored);
  keep_in(output_dir);
  if (environment_.local_size < environment_.world_size) record_->flush();
  if (environment_.world_size > 1) store_->set(kRun, std::to_string(run));
}

void RunFlight::join_folder(const std::string& output_dir) {
  if (!record_) return;
  const uint64_t run = std::stoull(store_->get(kRun, kRunMayTakeS));
  record_->belongs_to(run, output_dir);
  if (holds_record_of(flight_file(output_dir, 0), run)) keep_in(output_dir);
}

// A record is there to explain a failure: none is made by it.
void RunFlight::keep_in(const std::string& output_dir) {
  std::error_code failed;
  const std::string folder = (fs::path(output_dir) / kFlightFolder).string();
  if (fs::is_symlink(folder, failed))
    return log_->warning(concat(folder, " is a symbolic link, which is not followed; the run goes on without records"));
  fs::create_directory(folder, failed);
  try {
    record_->keep_in(flight_file(output_dir, record_->rank()));
    folder_ = folder;
  } catch (const Error& e) {
    log_->warning(concat(e.what(), "; the run goes on without it"));
  }
}

std::function<void(const std::vector<WorkSeconds>&)> RunFlight::straggler_watch(const PreparedRun& run) {
  const RunSettings& settings = run.plan.settings;
  if (!record_ || record_->rank() != 0 || record_->world_size() == 1 || settings.straggler_factor == 0) return {};
  std::vector<int64_t> sizes;
  std::vector<size_t> cuts;
  const std::vector<std::string>& batch_axes = run.plan.mesh.batch_axes;
  for (const Axis& axis : run.plan.mesh.axes) {
    if (std::find(batch_axes.begin(), batch_axes.end(), axis.name) != batch_axes.end()) cuts.push_back(sizes.size());
    sizes.push_back(axis.size);
  }
  const auto judge = std::make_shared<StragglerJudge>(
      StragglerRule{settings.straggler_factor, settings.straggler_steps, settings.straggler_least_s},
      ranks_alike(sizes, cuts));
  return [this, judge, &run](const std::vector<WorkSeconds>& ranks) { say(judge->step(ranks), run); };
}

void RunFlight::say(const StragglerJudge::News& news, const PreparedRun& run) {
  if (news.found.empty() && news.recovered.empty()) return;
  const std::vector<std::string> hosts = FlightExchange(store_, 0, record_->world_size()).hosts();
  const bool several = environment_.local_size < environment_.world_size;
  const auto plugin = [&](WorkPart part) -> std::string {
    if (part == WorkPart::data) return run.plan.id_of(Dataset::kKind) + ", hook read";
    return part == WorkPart::optimizer ? run.plan.id_of(Optimizer::kKind) : "";
  };
  for (const Straggler& one : news.found)
    log_->warning(straggler_text(one, several ? hosts.at(static_cast<size_t>(one.rank)) : "", plugin(one.part)));
  for (const int64_t rank : news.recovered)
    log_->info(concat("rank ", rank, " is no straggler any more: it is as quick as the others"));
}

void RunFlight::forget() {
  if (!record_) return;
  watch_.reset();
  record_->forget();
  if (folder_.empty()) return;
  std::error_code not_empty;  // until the last rank
  fs::remove(folder_, not_empty);
}

}  // namespace drivetrain
