#include "app/train_run.h"

#include <drivetrain/toolkit/text.h>

#include "app/after_training.h"
#include "app/plan_training.h"
#include "app/run_flight.h"
#include "app/run_folder.h"
#include "app/run_reports.h"
#include "checkpoint/ancestry.h"
#include "checkpoint/saver.h"
#include "checks/plugin_call.h"
#include "log/log_console.h"
#include "observe/bus.h"
#include "rendezvous/gather_values.h"
#include "report/facts.h"
#include "report/memory_measure.h"
#include "report/plan_text.h"
#include "report/schedule_picture.h"
#include "run/final_weights.h"
#include "run/run.h"
#include "step/trainer.h"

namespace drivetrain {
namespace {

constexpr const char* kFolderTaken = "run/folder";
constexpr const char* kResumedTag = "run/resumed_tag";  // "=" and the tag

// The folder belongs to rank 0; a rank that fails here ends the others through the communicator or the launcher.
// `lock`: of a folder with a run that goes on from `tag`; null: the folder is taken.
void open_run_folder(const TrainRequest& request, const Run& run, const Value& facts, const std::string& tag,
                     std::unique_ptr<FolderLock>& lock, RunFlight& flight) {
  const std::string& folder = run.plan.settings.output_dir;
  Value resolved = resolved_value(run, *request.registry);
  resolved.set("_resolved", facts);
  if (!tag.empty()) resolved.set(kGoesOnFrom, tag);
  if (lock)
    write_text_file(folder + "/resolved.json", resolved.to_json(2) + "\n");
  else
    lock = take_run_folder(folder, resolved.to_json(2) + "\n");
  flight.take_folder(folder);
  request.setup.store->set(kFolderTaken, folder);
  attach_file(*request.setup.log, folder + "/log.txt");
}

// A folder with a run, of which no checkpoint is where this config keeps them.
void nothing_to_go_on_from(const std::string& folder, bool has_store) {
  try {
    check_run_folder(folder);
  } catch (const Error& e) {
    throw fail(e.code(), e.what(),
               has_store ? "\n   it cannot be gone on with: no complete checkpoint is where checkpoint_store keeps them"
                         : "\n   it cannot be gone on with: checkpoint_store is switched off");
  }
}

class Session {
 public:
  explicit Session(const TrainRequest& request)
      : request_(request), env_(request.setup.environment), rank_zero_(env_.rank == 0) {}

  TrainOutcome run() {
    return telling_others(*request_.setup.store, env_, [&] { return from_plan_to_end(); });
  }

 private:
  TrainOutcome from_plan_to_end() {
    in("planning its part");
    const std::string& folder = request_.settings.output_dir;
    const bool goes_on = request_.resume.mode != ResumeOption::Mode::never;
    if (rank_zero_ && !goes_on) check_run_folder(folder);
    // The lock comes before open_place, which removes what may be the save of a run that is at work.
    if (rank_zero_ && holds_run(folder)) lock_ = std::make_unique<FolderLock>(folder);
    run_ = std::make_unique<Run>(
        std::move(*plan_training(request_.settings, request_.chosen, *request_.registry, request_.setup)));
    Run& run = *run_;
    check_host_memory(run.plan);
    const Value facts = resolved_facts(run.plan, *request_.registry);
    if (run.plugins.checkpoint_store && (!run.plugins.checkpoint_policies.empty() || holds_run(folder)))
      plugin_call({run.plan.id_of(CheckpointStore::kKind), "open_place"},
                  [&] { run.plugins.checkpoint_store->open_place(folder, rank_zero_); });
    if (rank_zero_) choose_beginning();
    in("waiting for the others");
    meet_ranks(request_, run, facts);
    if (env_.world_size > 1) tag_ = request_.setup.store->get(kResumedTag, resume_timeout()).substr(1);
    try {
      return work(facts);
    } catch (const std::exception& e) {
      // The peers learn the reason at once instead of waiting for a time-out.
      if (run.plugins.communicator)
        run.plugins.communicator->abort(concat("rank ", env_.rank, " stopped: ", first_line(e.what())));
      note_in_file(*run.log, concat("drivetrain: error: ", e.what()));
      saver_.reset();  // a checkpoint that is being written is still finished
      throw;
    }
  }

  double resume_timeout() const { return static_cast<double>(request_.settings.rendezvous_timeout_s); }

  // On rank 0, for all: a new run, or the checkpoint that the run in this folder goes on from.
  void choose_beginning() {
    const std::string& folder = request_.settings.output_dir;
    Run& run = *run_;
    if (lock_) {
      const CheckpointStore* store = run.plugins.checkpoint_store.get();
      const std::vector<StoredTag> tags = store ? store->tags() : std::vector<StoredTag>();
      begins_again_ = tags.empty() && folder == request_.begun_folder;
      if (tags.empty() && !begins_again_) nothing_to_go_on_from(folder, store != nullptr);
      if (!begins_again_) {
        GoOn on =
            choose_tag(*store, tags, request_.resume, folder,
                       {resolved_value(run, *request_.registry), run.plan.data.notes}, !lacks_final(run), *run.log);
        tag_ = on.tag;
        on_ = std::move(on);
      }
    } else if (request_.resume.mode == ResumeOption::Mode::tag) {
      throw fail(ErrorCode::config, "--resume ", request_.resume.tag, ": output_dir ", folder,
                 " holds no run\n   leave --resume out to begin one, or name the folder with --set output_dir=FOLDER");
    } else if (run.plugins.checkpoint_store && !run.plugins.checkpoint_policies.empty()) {
      check_no_tags(*run.plugins.checkpoint_store, folder);
    }
    if (env_.world_size > 1) request_.setup.store->set(kResumedTag, "=" + tag_);
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
    flight_.emplace(request_, run.plugins.communicator.get());
    build_run(run);
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
      open_run_folder(request_, run, facts, tag_, lock_, *flight_);
    else
      note_elsewhere(*run.log, run.plan.settings.output_dir + "/log.txt", [this] { return folder_is_ours(); });
    if (!rank_zero_ && run.plan.settings.flight_record) {
      request_.setup.store->get(kFolderTaken, resume_timeout());
      flight_->join_folder(run.plan.settings.output_dir);
    }
    if (rank_zero_) announce(request_, run, facts, planned);
    if (begins_again_) run.log->warning("the run before has left no checkpoint to go on from; it begins again");
    if (rank_zero_ && request_.on_restart_point) request_.on_restart_point(tag_);
    if (rank_zero_) bus = std::make_unique<EventBus>(run.plugins.monitors, *run.log);
    if (!unused.empty()) run.log->warning(unused);
    if (rank_zero_ && !tag_.empty())
      run.log->info(concat("goes on from checkpoint ", tag_, " with step ", trainer.next_step()));
    if (bus) bus->publish({"run_begin", 0, run_begin_data(request_, run, trainer.next_step())});
    saver_ = make_saver(trainer, bus.get());
    in("training");
    flight_->count_times();
    TrainOutcome outcome;
    outcome.last_step = trainer.train();
    const Value times = flight_->times();
    outcome.signal = trainer.stop_signal();
    outcome.stopped = outcome.last_step < run.plan.settings.train_steps;
    if (saver_ && saver_->last_step() == outcome.last_step) outcome.saved = saver_->last_tag();

    in("ending the run");
    AfterTraining after(run, trainer.late_failure());
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
    set_tags(kResumedFrom, on_.resumed_from), set_tags(kAskedFor, on_.asked_for);
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
                                                    .left_behind = on_.left_behind,
                                                    .on_commit = request_.on_restart_point});
    trainer.between_steps(saver.get());
    return saver;
  }

  const TrainRequest& request_;
  const RankEnvironment& env_;
  const bool rank_zero_;
  std::unique_ptr<Run> run_;
  std::unique_ptr<FolderLock> lock_;  // on rank 0, once the folder is this run's
  std::string tag_;                   // of the checkpoint that the run goes on from; "": it begins
  GoOn on_;                           // on rank 0, of a run that goes on
  bool begins_again_ = false;         // on rank 0, in the folder that begun_folder names
  std::optional<RunFlight> flight_;   // uses the run's communicator
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

void meet_ranks(const TrainRequest& request, const PlannedRun& run, const Value& facts) {
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
