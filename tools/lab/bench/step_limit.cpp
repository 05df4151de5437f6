#include "bench/step_limit.h"

#include <algorithm>

#include <drivetrain/toolkit/text.h>

#include "bench/bandwidth.h"
#include "bench/table.h"
#include "report/memory_plan.h"

namespace drivetrain {
namespace {

constexpr double kWorkingSet = 256 << 20;  // bytes: no cache holds it
constexpr int64_t kRounds = 5;

double bandwidth_of(const at::Device& device) {
  Bandwidth memory(device);
  const MemoryLoops& loops = memory.loops_at(kWorkingSet);
  const std::vector<double> seconds = least_seconds(device, loops.works, kRounds);
  double most = 0;
  for (size_t i = 0; i < seconds.size(); ++i) most = std::max(most, loops.bytes[i] / seconds[i]);
  return most;
}

double size_of(at::ScalarType type) { return static_cast<double>(c10::elementSize(type)); }

// Times that a rank runs what its activations at their peak stand for.
double rounds_of(const RunPlan& plan) {
  const std::vector<int64_t>& slots = plan.schedule.slots;
  const int64_t together = slots.empty() ? 1 : *std::max_element(slots.begin(), slots.end());
  return static_cast<double>(plan.batch.accumulation * plan.schedule.chunks) /
         static_cast<double>(std::max<int64_t>(1, together));
}

}  // namespace

StepBytes step_bytes(const RunPlan& plan) {
  const Dtypes& types = plan.dtypes.types;
  const double copy = types.param == types.master ? 0 : size_of(types.param);
  const double per_element =
      2 * size_of(types.master) + 2 * plan.optimizer_bytes_per_element + 2 * size_of(types.grad) + copy;
  const auto stage = static_cast<size_t>(stage_of_rank(plan, plan.rank));
  const double kept = stage < plan.stage_memories.size() ? plan.stage_memories[stage].activations.kept : 0;
  return {plan.updated_elements * per_element, 2 * kept * rounds_of(plan)};
}

StepLimit measure_limit(const PreparedRun& run, const Products& products) {
  const double device = bandwidth_of(run.services->device);
  StepLimit limit{products.seconds, device, step_bytes(run.plan)};
  if (run.plan.update.on_host) limit.update_bandwidth = bandwidth_of(at::kCPU);
  return limit;
}

Value StepLimit::to_value(double step_s) const {
  Value value = Value::object();
  value.set("products_s", products_s);
  value.set("update_bytes", bytes.update);
  value.set("activation_bytes", bytes.activations);
  value.set("bandwidth_bytes_per_s", bandwidth);
  if (update_bandwidth > 0) value.set("update_bandwidth_bytes_per_s", update_bandwidth);
  value.set("memory_s", memory_s());
  value.set("seconds", seconds());
  value.set("share", seconds() / step_s);
  return value;
}

std::string StepLimit::text(double step_s) const {
  return concat("limit: products ", seconds_text(products_s), " and ", formatted("%.2f GB", bytes.all() / 1e9),
                " of update and activations at ", formatted("%.1f GB/s", bandwidth / 1e9),
                update_bandwidth > 0 ? formatted(", the update at the host's %.1f GB/s", update_bandwidth / 1e9) : "",
                " ", seconds_text(memory_s()), ", together ", seconds_text(seconds()), ": the step reaches ",
                formatted("%.1f %%", 100 * seconds() / step_s), " of it\n");
}

}  // namespace drivetrain
