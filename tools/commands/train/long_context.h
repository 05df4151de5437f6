// `"long_context": true`: what a run does beyond its config so that its sequences fit the memory of a rank. Choices are
// tried from the cheapest on, each planned as the run itself would be, and the first that fits is taken:
//
//   nothing; the MLP in chunks (one more forward of it); blocks run again; and their inputs wait on the host
//
// each by every rank alone, and by 2, 4, ... ranks of a host that share the sequence (messages only). Hosts share
// sequences where nothing else fits. The output layer's loss is in chunks in every run. A section of the config that
// says one of these itself is left as it is. Main thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "internal.h"
#include "plan/prepared_run.h"
#include "report/memory_plan.h"

namespace drivetrain {

// What ranks run on.
struct LongContextMachine {
  DeviceCapacity device = {};  // of one rank
  double host = 0;             // bytes for all that ranks of one host keep there; 0: not known
  int64_t ranks = 1, ranks_per_host = 1;
};
// As the key says itself, else what is at hand. Nothing where a plan is made for a device that is not here.
std::optional<LongContextMachine> machine_at_hand(const RunSettings& settings, const RankEnvironment& env);

struct LongContextChoice {
  Value sections = Value::object();  // over the config
  std::vector<AutoValue> settled;
};

// Plans a config; throws Error where it is refused.
using PlanConfig = std::function<std::unique_ptr<PreparedRun>(const Value& config)>;

// Error(config) for keys that contradict each other and where every choice is refused, Error(out_of_memory) where
// nothing fits.
DRIVETRAIN_INTERNAL LongContextChoice choose_long_context(const Value& config, const LongContextMachine& machine,
                                                          const PlanConfig& plan);

}  // namespace drivetrain
