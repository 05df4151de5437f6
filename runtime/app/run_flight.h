// The flight record of a rank in a run: its file in the run's folder, and the watch that compares the ranks.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "app/train_run.h"
#include "flight/step_times.h"
#include "flight/watch.h"

namespace drivetrain {

inline constexpr const char* kFlightFolder = "flight";
// FOLDER/flight/rank_0003
std::string flight_file(const std::string& output_dir, int64_t rank);

class RunFlight {
 public:
  // Without a record it does nothing. `communicator` outlives it; null: there is none.
  RunFlight(const TrainRequest& request, Communicator* communicator);

  // Rank 0, once the folder is its own: what an earlier run left goes.
  void clear_folder(const std::string& output_dir);
  // From now on also in a file, where the folder is there: hosts without a common file system keep it in memory.
  void keep_in(const std::string& output_dir);
  // After a good end.
  void forget();

  // From here on where steps spend their time, on the thread that calls this; `times` ends it and says it. Null where
  // there is no record, or on an accelerator, whose work the host's clock does not see. Both on one thread.
  void count_times();
  Value times();

 private:
  const std::shared_ptr<FlightRecord> record_;
  const std::shared_ptr<Log> log_;
  std::string folder_;
  const bool on_host_;
  std::unique_ptr<FlightWatch> watch_;
  std::optional<StepTimes> times_;
};

}  // namespace drivetrain
