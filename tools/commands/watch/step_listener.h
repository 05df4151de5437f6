// What a thread's steps are made of, from what it writes into its rank's flight record: parts, calls, and the times in
// which a call or the wait for one held it up. Sums and pictures of steps are made of these.
#pragma once

#include <cstdint>
#include <vector>

#include "flight/listener.h"
#include "internal.h"

namespace drivetrain {

// Listens while it lives to the thread that made it.
class DRIVETRAIN_INTERNAL StepListener : public FlightListener {
 public:
  StepListener(const StepListener&) = delete;
  StepListener& operator=(const StepListener&) = delete;

  void at(const FlightPlace& place, double now_s) noexcept final;
  void begun(uint64_t serial, const char* group, const FlightCall& call, double now_s) noexcept final;
  void is(uint64_t serial, FlightState state, double now_s) noexcept final;

 protected:
  struct Call {
    const char* group;
    FlightCall what;
    double begun_s = 0;
    double held_up_s = 0;  // the sum so far
    double since_s = -1;   // the thread is held up; -1: it is not
  };

  // `step`: that in which the thread is, of which nothing counts. `left_out`: of those that follow, how many do not.
  StepListener(int64_t step, int64_t left_out)
      : before_(listen_to_this_thread(this)), step_(step), left_out_(left_out) {}
  ~StepListener() override { listen_to_this_thread(before_); }

  // Of steps that count. A step begins with its number and is over behind its update: an evaluation goes through
  // forwards of its own.
  virtual void part_over(const FlightPlace& place, double begin_s, double end_s) noexcept = 0;
  virtual void step_over(int64_t step, double begin_s, double end_s) noexcept = 0;
  virtual void call_begun(const Call&) noexcept {}
  // From the begin of a call to its return, and from the begin of a wait to its end. `outermost`: no other call held
  // the thread up at that time, of which this one is a part.
  virtual void held_up(const Call& call, double begin_s, double end_s, bool outermost) noexcept = 0;
  virtual void call_over(const Call&, double /*end_s*/) noexcept {}

 private:
  FlightListener* const before_;
  int64_t step_, left_out_;
  bool in_step_ = false;
  double step_begin_s_ = 0, since_s_ = 0;
  FlightPlace place_;
  struct Open {
    uint64_t serial;
    Call call;
  };
  std::vector<Open> open_;  // a few; steps of milliseconds have no time for a map's memory
  int holding_ = 0;         // of the open calls
};

}  // namespace drivetrain
