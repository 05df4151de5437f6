#include "train/training.h"

#include <algorithm>
#include <utility>

#include <drivetrain/toolkit/text.h>

#include "report/facts.h"
#include "train/ancestry.h"
#include "train/base_weights.h"
#include "train/final_weights.h"
#include "train/run_reports.h"
#include "train/strategy_state.h"

namespace drivetrain {
namespace {

constexpr double kLastSaveMayTakeS = 120;  // that of a run that has failed

// A run that changes nothing would end as if it were done.
void check_something_is_trained(const Run& run) {
  const bool any = std::any_of(run.chunks.begin(), run.chunks.end(), [](const Trainables& c) { return !c.empty(); });
  if (any || run.plan.schedule.stages > 1) return;
  throw fail(ErrorCode::plugin, run.plan.id_of(Model::kKind), ": no parameter is trained: the model has ",
             run.model_params.size(),
             ", and the optimizer is given none of them\n   a model needs parameters that are ",
             "trained; to use one as it is: drivetrain evaluate, drivetrain generate");
}

}  // namespace

Training::Training(const TrainRequest& request, Run& run, Beginning& beginning, RunFlight& flight, const Value& facts)
    : request_(request),
      env_(request.setup.environment),
      run_(run),
      beginning_(beginning),
      flight_(flight),
      trainer_(
          parts(),
          [this](int64_t step, Value data) {
            if (!bus_) return;
            bus_->publish({"step", step, std::move(data)});
            bus_->rethrow_if_failed();
          },
          *request.stop),
      planned_(planned_memory(run.plan)) {
  begin(facts);
  state_ = run_state(run, trainer_, bus_.get());
  saver_ = make_saver();
  if (!saver_) return;
  trainer_.between_steps(saver_.get());
  saver_->prepare();
  beginning_.watch_folder(run);  // rank 0 has taken it by now
}

// What the trainer uses of the run, which is built here.
TrainerParts Training::parts() {
  if (request_.on_start) request_.on_start();
  set_activity(*request_.setup.store, env_, "building the model");
  flight_.uses(run_.plugins.communicator.get());
  build_run(run_);
  check_bases(run_, "");
  if (env_.rank == 0) warn_of_left_state(run_.weights_from, *run_.log);
  check_something_is_trained(run_);
  if (run_.plan.settings.save_final && beginning_.tag().empty()) check_final(run_);
  TrainerParts parts = trainer_parts(run_);
  parts.executor.check = request_.check_plugins;
  parts.on_work = flight_.straggler_watch(run_);
  return parts;
}

void Training::begin(const Value& facts) {
  const std::string& tag = beginning_.tag();
  std::string unused;
  if (!tag.empty()) {
    set_activity(*request_.setup.store, env_, "loading the checkpoint");
    unused = resume_from(tag, run_, trainer_, env_);
  }
  beginning_.take_folder(run_, facts, flight_);
  if (env_.rank == 0) announce(request_, run_, facts, planned_);
  if (beginning_.begins_again())
    run_.log->warning("the run before has left no checkpoint to go on from; it begins again");
  if (env_.rank == 0 && request_.on_restart_point) request_.on_restart_point(tag);
  if (env_.rank == 0) bus_ = std::make_unique<EventBus>(run_.plugins.monitors, *run_.log);
  if (!unused.empty()) run_.log->warning(unused);
  if (env_.rank == 0 && !tag.empty())
    run_.log->info(concat("goes on from checkpoint ", tag, " with step ", trainer_.next_step()));
  if (bus_) bus_->publish({"run_begin", 0, run_begin_data(request_, run_, trainer_.next_step())});
}

std::unique_ptr<Saver> Training::make_saver() {
  if (!run_.plugins.checkpoint_store || run_.plugins.checkpoint_policies.empty()) return nullptr;
  refer_to_frozen_base(run_, !beginning_.tag().empty());
  Value facts = Value::object();
  if (!run_.frozen_base.params.empty()) facts.set(kFrozenBase, value_of(run_.frozen_base));
  facts.set("config", resolved_value(run_, *request_.registry));
  facts.set("run", resolved_facts(run_.plan, *request_.registry));
  const auto set_tags = [&](const char* key, const std::vector<std::string>& tags) {
    if (!tags.empty()) facts.set(key, Value(Value::Array(tags.begin(), tags.end())));
  };
  const GoOn& on = beginning_.on();
  set_tags(kResumedFrom, on.resumed_from), set_tags(kAskedFor, on.asked_for);
  facts.set(kRunId, beginning_.run_id());
  return std::make_unique<Saver>(SaverParts{.store = *run_.plugins.checkpoint_store,
                                            .store_id = run_.plan.id_of(CheckpointStore::kKind),
                                            .policies = run_.plugins.checkpoint_policies,
                                            .exchange = *run_.store,
                                            .environment = env_,
                                            .log = *run_.log,
                                            .mesh = *run_.mesh,
                                            .state = state_,
                                            .facts = std::move(facts),
                                            .train_steps = run_.plan.settings.train_steps,
                                            .left_behind = on.left_behind,
                                            .on_commit = request_.on_restart_point,
                                            .run_id = beginning_.run_id(),
                                            .check_place = [this] { beginning_.check_folder(); }});
}

TrainOutcome Training::train() {
  set_activity(*request_.setup.store, env_, "training");
  flight_.count_times();
  TrainOutcome outcome;
  outcome.last_step = trainer_.train();
  outcome.signal = trainer_.stop_signal();
  outcome.stopped = outcome.last_step < run_.plan.settings.train_steps;
  if (saver_ && saver_->last_step() == outcome.last_step) outcome.saved = saver_->last_tag();
  return outcome;
}

void Training::end_saver(const std::exception& error) {
  if (!saver_) return;
  if (const std::string tag = saver_->being_written(); !tag.empty()) {
    const auto* const known = dynamic_cast<const Error*>(&error);
    if (!known || known->code() != ErrorCode::communication)
      run_.log->warning(concat("the run ends by an error: ", first_line(error.what()), "\n   the checkpoint ", tag,
                               " that is being written is finished first"));
    if (!saver_->wait_until_written(kLastSaveMayTakeS))
      stop_run(*request_.setup.store, concat("rank ", env_.rank, " stopped: ", first_line(error.what())));
  }
  saver_.reset();
}

}  // namespace drivetrain
