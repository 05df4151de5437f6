// The parts of a run that follow its last step, each tried whatever became of those before it. Main thread.
#pragma once

#include <exception>
#include <string>

#include <drivetrain/communicator.h>

#include "run/run.h"

namespace drivetrain {

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

}  // namespace drivetrain
