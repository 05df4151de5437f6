#include "train/train_run.h"

#include <algorithm>
#include <utility>

#include <drivetrain/toolkit/text.h>

#include "checkpoint/agreement.h"
#include "checkpoint/ancestry.h"
#include "checkpoint/held_state.h"
#include "checkpoint/resume.h"
#include "checkpoint/saver.h"
#include "log/log_console.h"
#include "observe/bus.h"
#include "plugin_calls/plugin_call.h"
#include "rendezvous/gather_values.h"
#include "report/facts.h"
#include "report/memory_measure.h"
#include "report/plan_text.h"
#include "report/schedule_picture.h"
#include "run/run.h"
#include "step/trainer.h"
#include "train/after_training.h"
#include "train/beginning.h"
#include "train/final_weights.h"
#include "train/plan_training.h"
#include "train/run_flight.h"
#include "train/run_folder.h"
#include "train/run_reports.h"

namespace drivetrain {
namespace {

constexpr const char* kFolderTaken = "run/folder";
constexpr double kLastSaveMayTakeS = 120;               // that of a run that has failed
constexpr const char* kResumedTag = "run/resumed_tag";  // "=" and the tag

// A run that changes nothing would end as if it were done.
void check_something_is_trained(const Run& run) {
  const bool any = std::any_of(run.chunks.begin(), run.chunks.end(), [](const Trainables& c) { return !c.empty(); });
  if (any || run.plan.schedule.stages > 1) return;
  throw fail(ErrorCode::plugin, run.plan.id_of(Model::kKind), ": no parameter is trained: the model has ",
             run.model_params.size(),
             ", and the optimizer is given none of them\n   a model needs parameters that are ",
             "trained; to use one as it is: drivetrain evaluate, drivetrain generate");
}

class Session {
 public:
  explicit Session(const TrainRequest& request)
      : request_(request), env_(request.setup.environment), rank_zero_(env_.rank == 0), beginning_(request) {}

  TrainOutcome run() {
    return telling_others(*request_.setup.store, env_, [&] { return from_plan_to_end(); });
  }

 private:
  TrainOutcome from_plan_to_end() {
    in("planning its part");
    flight_.emplace(request_);
    const std::string& folder = request_.settings.output_dir;
    if (rank_zero_) beginning_.hold_folder();
    run_ = std::make_unique<Run>(
        std::move(*plan_training(request_.settings, request_.chosen, *request_.registry, request_.setup)));
    Run& run = *run_;
    check_host_memory(run.plan, *run.log);
    const Value facts = resolved_facts(run.plan, *request_.registry);
    if (run.plugins.checkpoint_store && (!run.plugins.checkpoint_policies.empty() || holds_run(folder)))
      plugin_call({run.plan.id_of(CheckpointStore::kKind), "open_place"},
                  [&] { run.plugins.checkpoint_store->open_place(folder, rank_zero_); });
    if (rank_zero_) {
      beginning_.choose(run), tag_ = beginning_.tag();
      if (env_.world_size > 1) request_.setup.store->set(kResumedTag, "=" + tag_);
    }
    in("waiting for the others");
    meet_ranks(request_, run, facts);
    if (env_.world_size > 1) tag_ = request_.setup.store->get(kResumedTag, resume_timeout()).substr(1);
    try {
      return work(facts);
    } catch (const std::exception& e) {
      tell(e);
      throw;
    }
  }

  // The peers learn the reason at once instead of waiting for a time-out, and before anything of this rank is
  // destroyed, which may wait for a disk or a monitor.
  void tell(const std::exception& error) {
    if (std::exchange(told_, true)) return;
    if (run_->plugins.communicator)
      run_->plugins.communicator->abort(concat("rank ", env_.rank, " stopped: ", first_line(error.what())));
    note_in_file(*run_->log, concat("drivetrain: error: ", error.what()));
    end_saver(error);
  }

  double resume_timeout() const { return static_cast<double>(request_.settings.rendezvous_timeout_s); }

  // The folder belongs to rank 0; a rank that fails here ends the others through the communicator or the launcher.
  void open_run_folder(const Value& facts) {
    const std::string& folder = run_->plan.settings.output_dir;
    beginning_.take_folder(*run_, facts);
    flight_->take_folder(folder);
    request_.setup.store->set(kFolderTaken, folder);
  }

  // Another run may be at work under its name.
  void check_folder() const {
    if (const FolderLock* lock = beginning_.lock()) lock->folder().check();
    if (folder_) folder_->check();
  }

  // On rank 0: what a run writes at its end goes where its folder is by then.
  void follow_folder() {
    const FolderLock* const lock = beginning_.lock();
    if (!lock || lock->folder().is_in_place()) return;
    const std::string now = lock->folder().whereabouts();
    if (now.empty()) lock->folder().check();
    run_->log->warning(concat("output_dir ", run_->plan.settings.output_dir, " was moved to ", now,
                              " while the run was at work in it: what is written at its end goes there"));
    run_->plan.settings.output_dir = now;
  }

  // A checkpoint that is being written is still finished, but who looks learns the error at once, and a rank that does
  // not write its part keeps nobody waiting.
  void end_saver(const std::exception& error) {
    if (!saver_) return;
    if (const std::string tag = saver_->being_written(); !tag.empty()) {
      const auto* const known = dynamic_cast<const Error*>(&error);
      if (!known || known->code() != ErrorCode::communication)
        run_->log->warning(concat("the run ends by an error: ", first_line(error.what()), "\n   the checkpoint ", tag,
                                  " that is being written is finished first"));
      if (!saver_->wait_until_written(kLastSaveMayTakeS))
        stop_run(*request_.setup.store, concat("rank ", env_.rank, " stopped: ", first_line(error.what())));
    }
    saver_.reset();
  }

  // Another run may hold it, and rank 0 be refused.
  bool folder_is_ours() const {
    try {
      return !request_.setup.store->get(kFolderTaken, 1).empty();
    } catch (const Error&) {
      return false;
    }
  }

  // Said to the others if this rank dies there.
  void in(const char* what) const { set_activity(*request_.setup.store, env_, what); }

  TrainOutcome work(const Value& facts) {
    Run& run = *run_;
    if (request_.on_start) request_.on_start();
    in("building the model");
    flight_->uses(run.plugins.communicator.get());
    build_run(run);
    check_something_is_trained(run);
    if (run.plan.settings.save_final && tag_.empty()) check_final(run);
    const PlannedMemory planned = planned_memory(run.plan);
    std::unique_ptr<EventBus> bus;  // on rank 0, once there is a folder
    TrainerParts parts = trainer_parts(run);
    parts.executor.check = request_.check_plugins;
    parts.on_work = flight_->straggler_watch(run);
    Trainer trainer(
        parts,
        [&](int64_t step, Value data) {
          if (!bus) return;
          bus->publish({"step", step, std::move(data)});
          bus->rethrow_if_failed();
        },
        *request_.stop);
    std::string unused;
    if (!tag_.empty()) {
      in("loading the checkpoint");
      unused = resume_from(tag_, run, trainer, env_);
    }
    // Only now, so that a start that fails leaves nothing behind, and a run's folder as it was.
    if (rank_zero_)
      open_run_folder(facts);
    else
      note_elsewhere(*run.log, run.plan.settings.output_dir + "/log.txt", [this] { return folder_is_ours(); });
    if (!rank_zero_ && run.plan.settings.flight_record) {
      request_.setup.store->get(kFolderTaken, resume_timeout());
      flight_->join_folder(run.plan.settings.output_dir);
    }
    if (rank_zero_) announce(request_, run, facts, planned);
    if (beginning_.begins_again())
      run.log->warning("the run before has left no checkpoint to go on from; it begins again");
    if (rank_zero_ && request_.on_restart_point) request_.on_restart_point(tag_);
    if (rank_zero_) bus = std::make_unique<EventBus>(run.plugins.monitors, *run.log);
    if (!unused.empty()) run.log->warning(unused);
    if (rank_zero_ && !tag_.empty())
      run.log->info(concat("goes on from checkpoint ", tag_, " with step ", trainer.next_step()));
    if (bus) bus->publish({"run_begin", 0, run_begin_data(request_, run, trainer.next_step())});
    saver_ = make_saver(trainer, bus.get());
    if (saver_) saver_->prepare();
    if (saver_ && !rank_zero_) folder_.emplace(run.plan.settings.output_dir);  // rank 0 has taken it by now
    in("training");
    flight_->count_times();
    TrainOutcome outcome;
    try {
      outcome.last_step = trainer.train();
    } catch (const std::exception& e) {
      tell(e);
      throw;
    }
    const Value times = flight_->times();
    outcome.signal = trainer.stop_signal();
    outcome.stopped = outcome.last_step < run.plan.settings.train_steps;
    if (saver_ && saver_->last_step() == outcome.last_step) outcome.saved = saver_->last_tag();

    in("ending the run");
    AfterTraining after(run, trainer.late_failure());
    after.run(Needs::nothing, [&] { follow_folder(); });
    after.run(Needs::peers, [&] {
      if (env_.world_size == 1 || !outcome.saved.empty()) return;  // a save has compared them
      HeldState held(*run.mesh);
      visit_checkpoint_state(run, trainer, held);
      check_copies(held.parts(), *run.store, env_, static_cast<double>(request_.settings.rendezvous_timeout_s));
    });
    after.run(Needs::peers, [&] {
      const double timeout_s = static_cast<double>(request_.settings.rendezvous_timeout_s);
      if (!times.is_null()) report_times(run, gather_values(*run.store, "step_times", env_, times, timeout_s));
      const auto memory = measure_memory(run, env_, timeout_s);
      if (bus) bus->publish({"run_end", outcome.last_step, run_end_data(outcome, report_memory(run, planned, memory))});
    });
    after.run(Needs::nothing, [&] {
      if (!bus) return;
      bus->flush();
      bus->rethrow_if_failed();
    });
    after.run(Needs::nothing, [&] {
      // A run that goes on later writes them in its end.
      if (run.plan.settings.save_final && !(outcome.stopped && !outcome.saved.empty()))
        write_final(run, resolved_value(run, *request_.registry), outcome.last_step, after.lost_peers());
    });
    after.rethrow();
    flight_->forget();
    return outcome;
  }

  // Null where nothing is saved. `bus`: on rank 0.
  std::unique_ptr<Saver> make_saver(Trainer& trainer, EventBus* bus) {
    Run& run = *run_;
    if (!run.plugins.checkpoint_store || run.plugins.checkpoint_policies.empty()) return nullptr;
    Value facts = Value::object();
    facts.set("config", resolved_value(run, *request_.registry));
    facts.set("run", resolved_facts(run.plan, *request_.registry));
    const auto set_tags = [&](const char* key, const std::vector<std::string>& tags) {
      if (!tags.empty()) facts.set(key, Value(Value::Array(tags.begin(), tags.end())));
    };
    const GoOn& on = beginning_.on();
    set_tags(kResumedFrom, on.resumed_from), set_tags(kAskedFor, on.asked_for);
    facts.set(kRunId, beginning_.run_id());
    auto saver = std::make_unique<Saver>(SaverParts{.store = *run.plugins.checkpoint_store,
                                                    .store_id = run.plan.id_of(CheckpointStore::kKind),
                                                    .policies = run.plugins.checkpoint_policies,
                                                    .exchange = *run.store,
                                                    .environment = env_,
                                                    .log = *run.log,
                                                    .mesh = *run.mesh,
                                                    .visit =
                                                        [&run, &trainer, bus](StateVisitor& v) {
                                                          if (bus)
                                                            bus->flush();  // monitors have counted what was published
                                                          visit_checkpoint_state(run, trainer, v);
                                                        },
                                                    .until_update = {"model/", run.plan.id_of(Optimizer::kKind) + "/"},
                                                    .facts = std::move(facts),
                                                    .train_steps = run.plan.settings.train_steps,
                                                    .left_behind = on.left_behind,
                                                    .on_commit = request_.on_restart_point,
                                                    .run_id = beginning_.run_id(),
                                                    .check_place = [this] { check_folder(); }});
    trainer.between_steps(saver.get());
    return saver;
  }

  const TrainRequest& request_;
  const RankEnvironment& env_;
  const bool rank_zero_;
  std::unique_ptr<Run> run_;
  Beginning beginning_;               // on rank 0
  std::optional<HeldFolder> folder_;  // on other ranks that save
  std::string tag_;                   // of the checkpoint that the run goes on from; "": it begins
  std::optional<RunFlight> flight_;   // uses the run's communicator
  bool told_ = false;                 // what this rank failed by
  std::unique_ptr<Saver> saver_;      // ends before the run that it saves; null: nothing is saved
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
