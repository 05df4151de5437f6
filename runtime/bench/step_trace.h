// What a rank does in some of its steps, one slice per part and per call of its communicator, as a file that Perfetto
// (https://ui.perfetto.dev) and chrome://tracing open: ranks side by side, computation and communication apart.
//
// The form is that of "Trace Event Format": complete events ("X") with microseconds, a process per rank, and of each
// rank a thread "step" and, per group, as many as it takes so that calls which overlap lie beside each other.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "flight/listener.h"
#include "internal.h"

namespace drivetrain {

// Listens while it lives to the thread that made it, which writes into `record`.
class DRIVETRAIN_INTERNAL StepTrace final : public FlightListener {
 public:
  // A step that has begun before is left out.
  explicit StepTrace(const FlightRecord& record)
      : record_(record), before_(listen_to_this_thread(this)), step_(record.place().step) {}
  ~StepTrace() override { listen_to_this_thread(before_); }
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  void at(const FlightPlace& place, double now_s) noexcept override;
  void begun(uint64_t serial, const char* group, const FlightCall& call, double now_s) noexcept override;
  void is(uint64_t serial, FlightState state, double now_s) noexcept override;

  // Of the steps that have ended: what trace_of takes, once per rank.
  Value to_value() const;

 private:
  struct Slice {
    std::string track, name;
    double begin_s = 0, end_s = 0;
    int64_t micro = -1, bytes = 0, number = 0;
    double waited_s = 0;
  };
  struct Open {
    Slice slice;
    double since_s = 0;  // the thread has been held up; 0: it is not
  };
  void held_up(Open& call, double now_s);

  const FlightRecord& record_;
  FlightListener* const before_;
  int64_t step_;
  double step_begin_s_ = 0, since_s_ = 0;
  FlightPlace doing_;
  bool in_step_ = false;
  std::map<uint64_t, Open> open_;
  std::vector<Slice> slices_;
};

// The file's object, from the values of all ranks in their order.
DRIVETRAIN_INTERNAL Value trace_of(const std::vector<Value>& ranks);

}  // namespace drivetrain
