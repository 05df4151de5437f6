// One rank of a training run, from its parsed config to the final weights.
// Ranks may be processes or threads: nothing here is global; signals and the environment stay with the caller.
#pragma once

#include <atomic>
#include <functional>

#include "internal.h"
#include "plan/prepared_run.h"
#include "train/resume.h"

namespace drivetrain {

struct TrainRequest {
  Value config;  // with --set applied and places expanded
  std::string config_path;
  RunSettings settings;
  std::vector<ChosenPlugin> chosen;
  const Registry* registry = nullptr;
  RankSetup setup;
  bool plan_only = false;                  // the device is not opened: plans are made for machines elsewhere too
  const std::atomic<int>* stop = nullptr;  // once not 0, the run ends after the step it is in
  const std::atomic<int>* flight_asked = nullptr;  // counts the user's questions where the run is; null: none come
  std::function<void()> on_start;                  // called once all ranks have met; from then on `stop` is heeded
  bool check_plugins = false;                      // look at every call in a step (step/span_check.h)
  bool terminal = false;                           // rank 0's output ends on a terminal
  ResumeOption resume{};
  // output_dir that an earlier start of the same launch has begun: if it holds no checkpoint, the run begins there
  // again.
  std::string begun_folder{};
  // Called on rank 0 with the checkpoint that a restart would go on from: once the folder is this run's ("": there is
  // none), and after each one that is complete. Any thread, one call at a time; does not throw. Empty: nobody asks.
  std::function<void(const std::string& tag)> on_restart_point{};
};

struct TrainOutcome {
  int64_t last_step = 0;
  bool stopped = false;  // before train_steps, because some rank was asked to
  int signal = 0;        // by this signal; 0: none
  std::string saved{};   // the checkpoint of the last step; "": none
};

// Before the first collective: is everybody there, with the same configuration and the same libraries (`facts`)?
void meet_ranks(const TrainRequest& request, const PreparedRun& run, const Value& facts);

// Throws Error. Collective over all ranks of the store.
DRIVETRAIN_INTERNAL TrainOutcome train_rank(const TrainRequest& request);

// What `train --plan` shows: mesh, placement, nesting, memory. Nothing is allocated, no rank waits for another.
struct PlanRequest {
  bool json = false;  // RunPlan::to_json instead of the text
  std::string svg;    // a file that the schedule is drawn into; empty: none
};
DRIVETRAIN_INTERNAL std::string describe_plan(const TrainRequest& request, const PlanRequest& wanted = {});

}  // namespace drivetrain
