#include "train/train_run.h"

#include <optional>

#include <drivetrain/toolkit/text.h>

#include "log/log_console.h"
#include "plugin_calls/situations.h"
#include "report/facts.h"
#include "report/plan_text.h"
#include "report/schedule_picture.h"
#include "train/beginning.h"
#include "train/ending.h"
#include "train/plan_training.h"
#include "train/training.h"

namespace drivetrain {
namespace {

class Session {
 public:
  explicit Session(const TrainRequest& request)
      : request_(request), env_(request.setup.environment), beginning_(request) {}

  TrainOutcome run() {
    return telling_others(*request_.setup.store, env_, [&] { return from_plan_to_end(); });
  }

 private:
  TrainOutcome from_plan_to_end() {
    in("planning its part");
    flight_.emplace(request_);
    beginning_.hold_folder();
    run_.emplace(std::move(*plan_training(request_.settings, request_.chosen, *request_.registry, request_.setup)));
    check_host_memory(run_->plan, *run_->log);
    const Value facts = resolved_facts(run_->plan, *request_.registry);
    beginning_.choose(*run_);
    in("waiting for the others");
    meet_ranks(request_, *run_, facts);
    beginning_.hear();
    try {
      training_.emplace(request_, *run_, beginning_, *flight_, facts);
      const TrainOutcome outcome = training_->train();
      end_run(request_, *run_, beginning_, *training_, *flight_, outcome);
      return outcome;
    } catch (const std::exception& e) {
      const auto situation = situation_of(e);  // while the rank still knows where it is in its step
      if (!situation) {
        tell(e);
        throw;
      }
      const Error error = fail(situation->code, situation->text());
      tell(error);
      throw error;
    }
  }

  // The peers learn the reason at once instead of waiting for a time-out, and before anything of this rank is
  // destroyed, which may wait for a disk or a monitor.
  void tell(const std::exception& error) {
    if (run_->plugins.communicator)
      run_->plugins.communicator->abort(concat("rank ", env_.rank, " stopped: ", first_line(error.what())));
    note_in_file(*run_->log, concat("drivetrain: error: ", error.what()));
    if (training_) training_->end_saver(error);
  }

  // Said to the others if this rank dies there.
  void in(const char* what) const { set_activity(*request_.setup.store, env_, what); }

  const TrainRequest& request_;
  const RankEnvironment& env_;
  std::optional<Run> run_;
  Beginning beginning_;
  std::optional<RunFlight> flight_;  // uses the run's communicator
  std::optional<Training> training_;
};

// Hosts with copies of the same files have other times of change (dataset.h).
void erase_file_times(Value& value) {
  if (value.is_array())
    for (Value& item : value.items()) erase_file_times(item);
  if (!value.is_object()) return;
  std::vector<std::string> times;
  for (Value::Member& m : value.members()) {
    if (m.key.ends_with("_mtime_ns")) times.push_back(m.key);
    erase_file_times(m.value);
  }
  for (const std::string& key : times) value.erase(key);
}

}  // namespace

void meet_ranks(const TrainRequest& request, const PreparedRun& run, const Value& facts) {
  const RankEnvironment& env = request.setup.environment;
  if (env.world_size == 1) return;
  Value same = Value::object();
  Value config = resolved_value(run, *request.registry);
  config.erase("output_dir");
  same.set("config", config);
  Value libraries = facts;
  for (const char* own : {"host", "libtorch_folder"}) libraries.erase(own);
  erase_file_times(libraries);
  same.set("facts", libraries);
  check_arrival(*request.setup.store, env, static_cast<double>(request.settings.rendezvous_timeout_s));
  check_same(*request.setup.store, env, same, static_cast<double>(request.settings.rendezvous_timeout_s));
}

TrainOutcome train_rank(const TrainRequest& request) { return Session(request).run(); }

std::string describe_plan(const TrainRequest& request, const PlanRequest& wanted) {
  const auto run = plan_training(request.settings, request.chosen, *request.registry, request.setup);
  RunPlan& plan = run->plan;
  if (plan.schedule.stages > 1 || !wanted.svg.empty()) add_timeline(plan, *run->plugins.schedule);
  if (!wanted.svg.empty()) write_text_file(wanted.svg, schedule_svg(plan));
  if (!wanted.json) return plan_text(plan);
  Value json = plan.to_json();
  json.set("config", resolved_value(*run, *request.registry));
  return json.to_json(2) + "\n";
}

}  // namespace drivetrain
