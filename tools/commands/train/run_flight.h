// The flight record of a rank in a run: its file in the run's folder, the watch that compares the ranks when they do
// not go on, and the one that looks for ranks that are slower than others.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/train_run.h"
#include "watch/step_times.h"
#include "watch/straggler.h"
#include "watch/watch.h"

namespace drivetrain {

inline constexpr const char* kFlightFolder = "flight";
// FOLDER/flight/rank_0003
std::string flight_file(const std::string& output_dir, int64_t rank);

class RunFlight {
 public:
  // Without a record it does nothing. From here on a rank that stands still is named, and who asks is answered.
  explicit RunFlight(const TrainRequest& request);
  // The one to abort where ranks make different calls. It outlives this object; null: there is none.
  void uses(Communicator* communicator) { communicator_ = communicator; }

  // Rank 0, once the folder is its own: what an earlier run left goes, and its own record begins.
  void take_folder(const std::string& output_dir);
  // The other ranks, once rank 0 has taken it. Where the folder is another one than rank 0's, since hosts have no
  // common file system, the record stays in memory.
  void join_folder(const std::string& output_dir);
  // What rank 0 does with every rank's own work in a step; empty where nobody is looked at. The run outlives it.
  std::function<void(const std::vector<WorkSeconds>&)> straggler_watch(const PreparedRun& run);
  // After a good end.
  void forget();

  // From here on where steps spend their time, on the thread that calls this; `times` ends it and says it. Null where
  // there is no record, or on an accelerator, whose work the host's clock does not see. Both on one thread.
  void count_times();
  Value times();

 private:
  void keep_in(const std::string& output_dir);
  void say(const StragglerJudge::News& news, const PreparedRun& run);

  const std::shared_ptr<FlightRecord> record_;
  const std::shared_ptr<Log> log_;
  const std::shared_ptr<Store> store_;
  const RankEnvironment environment_;
  std::string folder_;
  const bool on_host_;
  std::atomic<Communicator*> communicator_ = nullptr;
  std::unique_ptr<FlightWatch> watch_;
  std::optional<StepTimes> times_;
};

}  // namespace drivetrain
