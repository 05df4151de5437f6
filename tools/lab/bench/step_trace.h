// What a rank does in some of its steps, one slice per part and per call of its communicator, as a file that Perfetto
// (https://ui.perfetto.dev) and chrome://tracing open: ranks side by side, computation and communication apart.
//
// The form is that of "Trace Event Format": complete events ("X") with microseconds, a process per rank, and of each
// rank a thread "step" and, per group, as many as it takes so that calls which overlap lie beside each other.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "internal.h"
#include "watch/step_listener.h"

namespace drivetrain {

// Of the thread that made it, which writes into `record`.
class DRIVETRAIN_INTERNAL StepTrace final : public StepListener {
 public:
  explicit StepTrace(const FlightRecord& record) : StepListener(record.place().step, 0), record_(record) {}

  // Of the steps that have ended: what trace_of takes, once per rank.
  Value to_value() const;

 private:
  struct Slice {
    std::string track, name;
    double begin_s = 0, end_s = 0;
    int64_t micro = -1, bytes = 0, number = 0;
    double waited_s = 0;
  };

  void part_over(const FlightPlace& place, double begin_s, double end_s) noexcept override;
  void step_over(int64_t step, double begin_s, double end_s) noexcept override;
  void held_up(const Call& call, double begin_s, double end_s, bool outermost) noexcept override;
  void call_over(const Call& call, double end_s) noexcept override;
  void add(Slice slice);

  const FlightRecord& record_;
  double ended_s_ = 0;  // the last step that has ended
  std::vector<Slice> slices_;
};

// The file's object, from the values of all ranks in their order.
DRIVETRAIN_INTERNAL Value trace_of(const std::vector<Value>& ranks);

}  // namespace drivetrain
