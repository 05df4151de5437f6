#include "train/ending.h"

#include <exception>
#include <string>

#include "checkpoint/agreement.h"
#include "rendezvous/gather_values.h"
#include "report/facts.h"
#include "report/memory_measure.h"
#include "train/final_weights.h"
#include "train/run_reports.h"

namespace drivetrain {
namespace {

enum class Needs { nothing, peers };

// The parts of an ending. Without its peers a rank does only the parts that need none. Peers count as lost if a part
// that needs them throws Error(communication). If a plugin threw it, the communicator and the store are asked first.
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

// Collective, once a run: every rank gets the Error(plugin) if copies differ. Error(communication) naming the ranks
// that did not answer in `timeout_s`.
void check_copies(const std::vector<HeldPart>& parts, Store& store, const RankEnvironment& env, double timeout_s) {
  constexpr const char *kKey = "copies", *kAnswer = "copies/differ";
  const Value mine = held_alike(Value::object(), digests_of(parts));
  const std::vector<Value> all = gather_values(store, kKey, env, mine, timeout_s);
  const std::string differ = env.rank == 0 ? differing_copies(all) : store.get(kAnswer, timeout_s).substr(1);
  if (env.rank == 0) store.set(kAnswer, "=" + differ);
  if (!differ.empty()) throw fail(ErrorCode::plugin, differ);
}

}  // namespace

void end_run(const TrainRequest& request, Run& run, const Beginning& beginning, const Training& training,
             RunFlight& flight, const TrainOutcome& outcome) {
  const RankEnvironment& env = request.setup.environment;
  const auto timeout_s = static_cast<double>(request.settings.rendezvous_timeout_s);
  const Value times = flight.times();
  EventBus* const bus = training.bus();
  set_activity(*request.setup.store, env, "ending the run");
  AfterTraining after(run, training.late_failure());
  after.run(Needs::nothing, [&] { beginning.follow_folder(run); });
  after.run(Needs::peers, [&] {
    if (env.world_size == 1 || !outcome.saved.empty()) return;  // a save has compared them
    check_copies(HeldState(*run.mesh, training.state()).parts(), *run.store, env, timeout_s);
  });
  after.run(Needs::peers, [&] {
    if (!times.is_null()) report_times(run, gather_values(*run.store, "step_times", env, times, timeout_s));
    const auto memory = measure_memory(run, training.state(), env, timeout_s);
    if (!bus) return;
    bus->publish({"run_end", outcome.last_step, run_end_data(outcome, report_memory(run, training.planned(), memory))});
  });
  after.run(Needs::nothing, [&] {
    if (!bus) return;
    bus->flush();
    bus->rethrow_if_failed();
  });
  after.run(Needs::nothing, [&] {
    // A run that goes on later writes them in its end.
    if (run.plan.settings.save_final && !(outcome.stopped && !outcome.saved.empty()))
      write_final(run, resolved_value(run, *request.registry), outcome.last_step, after.lost_peers());
  });
  after.rethrow();
  flight.forget();
}

}  // namespace drivetrain
