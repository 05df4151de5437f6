#include "app/run_flight.h"

#include <cstdio>
#include <filesystem>

#include <drivetrain/error.h>

namespace drivetrain {
namespace fs = std::filesystem;

std::string flight_file(const std::string& output_dir, int64_t rank) {
  char name[32];
  std::snprintf(name, sizeof name, "rank_%04lld", static_cast<long long>(rank));
  return (fs::path(output_dir) / kFlightFolder / name).string();
}

RunFlight::RunFlight(const TrainRequest& request, Communicator* communicator)
    : record_(request.setup.flight), log_(request.setup.log), on_host_(request.settings.device == "cpu") {
  if (!record_) return;
  const RankEnvironment& env = request.setup.environment;
  FlightWatchParts parts;
  parts.record = record_, parts.store = request.setup.store, parts.log = log_;
  parts.first_of_host = env.local_rank == 0 || env.rank == 1;
  parts.stall_s = request.settings.stall_report_s;
  parts.asked = request.flight_asked;
  if (communicator)
    parts.on_different_calls = [communicator](const std::string& reason) { communicator->abort(reason); };
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

void RunFlight::clear_folder(const std::string& output_dir) {
  if (!record_) return;
  std::error_code ignored;
  const fs::path folder = fs::path(output_dir) / kFlightFolder;
  if (fs::is_symlink(folder, ignored)) return;
  for (auto at = fs::directory_iterator(folder, ignored); !ignored && at != fs::directory_iterator();
       at.increment(ignored))
    if (at->path().filename().string().starts_with("rank_")) fs::remove(at->path(), ignored);
}

// A record is there to explain a failure: none is made by it.
void RunFlight::keep_in(const std::string& output_dir) {
  std::error_code failed;
  if (!record_ || !fs::is_directory(output_dir, failed)) return;
  folder_ = (fs::path(output_dir) / kFlightFolder).string();
  fs::create_directory(folder_, failed);
  try {
    record_->keep_in(flight_file(output_dir, record_->rank()));
  } catch (const Error& e) {
    log_->warning(concat(e.what(), "; the run goes on without it"));
  }
}

void RunFlight::forget() {
  if (!record_ || folder_.empty()) return;
  watch_.reset();
  record_->forget();
  std::error_code not_empty;  // until the last rank
  fs::remove(folder_, not_empty);
}

}  // namespace drivetrain
