#include "plan/memory_plan.h"

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
