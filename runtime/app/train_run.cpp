#include "app/train_run.h"

#include <drivetrain/toolkit/text.h>

#include "app/plan_training.h"
#include "app/run_folder.h"
#include "checks/plugin_call.h"
#include "log/log_console.h"
#include "observe/bus.h"
#include "report/dtype_text.h"
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

// The folder belongs to rank 0; a rank that fails here ends the others through the communicator or the launcher.
void open_run_folder(const TrainRequest& request, const Run& run, const Value& facts) {
  const std::string& folder = run.plan.settings.output_dir;
  Value resolved = resolved_value(run, *request.registry);
  resolved.set("_resolved", facts);
  take_run_folder(folder, resolved.to_json(2) + "\n");
  request.setup.store->set(kFolderTaken, folder);
  attach_file(*request.setup.log, folder + "/log.txt");
}

void announce(const TrainRequest& request, const Run& run, const Value& facts, const PlannedMemory& memory) {
  Log& log = *run.log;
  log.info(plan_headline(run.plan));
  request.registry->log_notes(log);
  log.info(dtype_table(run.plan));
  for (const std::string& line : planned_lines(memory, run.plan.model.parameters, false)) log.info(line);
  for (const std::string& note : run.plan.notes) log.info(note);
  if (const std::string capture = capture_text(run.plan); !capture.empty()) log.info(capture);
  const std::string optimizer = run.plan.id_of(Optimizer::kKind);
  const std::string difference = plugin_call({optimizer, "difference_note"},
                                             [&] { return run.plugins.optimizer->difference_note(run.model_params); });
  if (!difference.empty()) log.info(difference);
  if (const Value* before = request.config.find("_resolved"))
    for (const std::string& line : differing_facts(*before, facts))
      log.warning("not as in the run this config is from: " + line);
  log.info("run folder " + run.plan.settings.output_dir);
}

Value run_begin_data(const TrainRequest& request, const Run& run) {
  Value data = Value::object();
  data.set("output_dir", run.plan.settings.output_dir);
  data.set("train_steps", run.plan.settings.train_steps);
  data.set("steps_per_print", run.plan.settings.steps_per_print);
  data.set("terminal", request.terminal);
  data.set("parameters", run.plan.model.parameters);
  return data;
}

// Planned beside measured; the ranks one by one in the log file alone. Returns what the run's folder keeps.
Value report_memory(const Run& run, const PlannedMemory& planned, const std::vector<MeasuredMemory>& ranks) {
  for (const std::string& line : measured_lines(planned, ranks, run.plan.model.parameters)) run.log->info(line);
  if (ranks.size() > 1)
    for (const std::string& line : rank_lines(ranks)) note_in_file(*run.log, line);
  Value memory = memory_value(planned, ranks, run.plan.model.parameters);
  write_text_file(run.plan.settings.output_dir + "/memory.json", memory.to_json(2) + "\n");
  return memory;
}

Value run_end_data(const TrainOutcome& outcome, Value memory) {
  Value end = Value::object();
  end.set("reason", outcome.stopped ? "stopped" : "done");
  end.set("memory", std::move(memory));
  return end;
}

enum class Needs { nothing, peers };

// What a run does once it is trained: each part is tried whatever became of those before it,
// so that one that fails loses no weights. The first failure is the run's.
// Without its peers a rank does what needs none. They are lost where a part that needs them says so; where a plugin
// does it may speak of somebody else, and the communicator and the store are asked.
class AfterTraining {
 public:
  AfterTraining(const Run& run, std::exception_ptr failure) : run_(run) { keep(std::move(failure), Needs::nothing); }

  template <class Part>
  void run(Needs needs, const Part& part) {
    if (needs == Needs::peers && lost_peers_) return;
    try {
      part();
    } catch (...) {
      keep(std::current_exception(), needs);
    }
  }
  bool lost_peers() const { return lost_peers_; }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  void keep(std::exception_ptr failure, Needs needs) try {
    if (!failure) return;
    if (!first_) first_ = failure;
    std::rethrow_exception(failure);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::communication || lost_peers_) return;
    lost_peers_ = needs == Needs::peers || by_communicator(e) || run_stopped();
  } catch (...) {
  }

  // After an error of its own it makes no call any more. It names itself, also inside of a strategy's hook.
  bool by_communicator(const Error& e) const {
    const std::string id = run_.plan.id_of(Communicator::kKind);
    return !id.empty() && std::string(e.what()).find(id) != std::string::npos;
  }
  // Then the store has no answer about a key that is not there.
  bool run_stopped() const try {
    run_.store->has("the run goes on");
    return false;
  } catch (const Error&) {
    return true;
  }

  const Run& run_;
  std::exception_ptr first_;
  bool lost_peers_ = false;
};

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
    if (rank_zero_) check_run_folder(request_.settings.output_dir);
    run_ = std::make_unique<Run>(
        std::move(*plan_training(request_.settings, request_.chosen, *request_.registry, request_.setup)));
    Run& run = *run_;
    check_host_memory(run.plan);
    const Value facts = resolved_facts(run.plan, *request_.registry);
    in("waiting for the others");
    meet_ranks(request_, run, facts);
    try {
      return work(facts);
    } catch (const std::exception& e) {
      // The peers learn the reason at once instead of waiting for a time-out.
      if (run.plugins.communicator)
        run.plugins.communicator->abort(concat("rank ", env_.rank, " stopped: ", first_line(e.what())));
      note_in_file(*run.log, concat("drivetrain: error: ", e.what()));
      throw;
    }
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
    build_run(run);
    if (run.plan.settings.save_final) check_final(run);
    const PlannedMemory planned = planned_memory(run.plan);
    // Only now, so that a start that fails leaves nothing behind.
    if (rank_zero_)
      open_run_folder(request_, run, facts);
    else
      note_elsewhere(*run.log, run.plan.settings.output_dir + "/log.txt", [this] { return folder_is_ours(); });
    if (rank_zero_) announce(request_, run, facts, planned);
    std::unique_ptr<EventBus> bus;
    if (rank_zero_) bus = std::make_unique<EventBus>(run.plugins.monitors, *run.log);
    if (bus) bus->publish({"run_begin", 0, run_begin_data(request_, run)});

    Trainer trainer(
        trainer_parts(run),
        [&](int64_t step, Value data) {
          if (!bus) return;
          bus->publish({"step", step, std::move(data)});
          bus->rethrow_if_failed();
        },
        *request_.stop);
    in("training");
    TrainOutcome outcome;
    outcome.last_step = trainer.train();
    outcome.stopped = outcome.last_step < run.plan.settings.train_steps;

    in("ending the run");
    AfterTraining after(run, trainer.late_failure());
    after.run(Needs::peers, [&] {
      const auto memory = measure_memory(run, env_, static_cast<double>(request_.settings.rendezvous_timeout_s));
      if (bus) bus->publish({"run_end", outcome.last_step, run_end_data(outcome, report_memory(run, planned, memory))});
    });
    after.run(Needs::nothing, [&] {
      if (!bus) return;
      bus->flush();
      bus->rethrow_if_failed();
    });
    after.run(Needs::nothing, [&] {
      if (run.plan.settings.save_final) write_final(run, after.lost_peers());
    });
    after.rethrow();
    return outcome;
  }

  const TrainRequest& request_;
  const RankEnvironment& env_;
  const bool rank_zero_;
  std::unique_ptr<Run> run_;
};

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
  return wanted.json ? plan.to_json().to_json(2) + "\n" : plan_text(plan);
}

}  // namespace drivetrain
