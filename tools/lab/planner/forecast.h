// A planned run on a machine: memory by class, the verdict whether it fits, and the time of a step. Main thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "internal.h"
#include "plan/prepared_run.h"
#include "predict/profile.h"
#include "predict/step_time.h"
#include "report/memory_plan.h"

namespace drivetrain {

// What a rank's device of that machine has.
DeviceCapacity capacity_of(const Hardware& hardware);

struct MemoryForecast {
  PlannedMemory planned;                // bytes, of the fullest rank, with what the device and groups of ranks take
  std::vector<MemoryVerdict> verdicts;  // by stage
  double gib = 0, has_gib = 0;          // together; what the device has
  bool fits() const { return gib <= has_gib; }
};

struct Forecast {
  MemoryForecast memory;
  StepTime time;
  StepWork work;  // that the time is of, without what a profile says
};
// `profile`: of the system that is planned; null: this program. Error(config) where the machine is of another device
// than the run, or its file lacks what the run needs.
DRIVETRAIN_INTERNAL Forecast forecast(const PreparedRun& run, const Hardware& hardware,
                                      const Profile* profile = nullptr);

DRIVETRAIN_INTERNAL std::string forecast_text(const RunPlan& plan, const Forecast& forecast, const Hardware& hardware);
DRIVETRAIN_INTERNAL Value forecast_value(const Forecast& forecast, const Hardware& hardware);

}  // namespace drivetrain
