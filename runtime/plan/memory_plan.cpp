#include "plan/memory_plan.h"

#include <c10/core/ScalarType.h>

#include <drivetrain/checkpoint_policy.h>
#include <drivetrain/error.h>
#include <drivetrain/optimizer.h>

namespace drivetrain {

const char* memory_class_name(MemoryClass memory_class) {
  switch (memory_class) {
    case MemoryClass::parameters:
      return "parameters";
    case MemoryClass::gradients:
      return "gradients";
    case MemoryClass::optimizer:
      return "optimizer";
    case MemoryClass::activations:
      return "activations";
    case MemoryClass::buffers:
      break;
  }
  return "buffers";
}

double MemoryTable::states() const {
  double sum = 0;
  for (const MemoryClass c : kStateClasses) sum += (*this)[c];
  return sum;
}

double MemoryTable::passing() const { return (*this)[MemoryClass::buffers] + (*this)[MemoryClass::activations]; }

// Values are saved as the optimizer updates them; ranks' shares are about equal.
CheckpointBytes checkpoint_bytes(const RunPlan& plan) {
  if (plan.id_of(CheckpointStore::kKind).empty() || plan.id_of(CheckpointPolicy::kKind).empty()) return {};
  const double element =
      static_cast<double>(c10::elementSize(plan.dtypes.types.master)) + plan.optimizer_bytes_per_element;
  const double bytes = static_cast<double>(plan.model.parameters) * element;
  return {bytes, bytes / static_cast<double>(plan.run.world_size)};
}

PlannedMemory planned_memory(const RunPlan& plan) {
  PlannedMemory planned;
  const auto add = [&](MemoryClass c, double bytes, const std::string& source) {
    planned[c] += bytes;
    std::string& sources = planned.sources[static_cast<size_t>(c)];
    sources += (sources.empty() ? "" : "; ") + source;
  };
  for (const auto& m : plan.memories) add(m.memory_class, m.bytes, m.by + ": " + m.what);
  if (const std::string optimizer = plan.id_of(Optimizer::kKind); !optimizer.empty())
    add(MemoryClass::optimizer, plan.optimizer_bytes_per_element * plan.updated_elements, optimizer + ": state");
  if (plan.activations.bytes > 0) add(MemoryClass::activations, plan.activations.bytes, plan.activations.source);
  return planned;
}

}  // namespace drivetrain
