#include "plan/composition.h"

#include <algorithm>

#include "checks/plugin_call.h"

namespace drivetrain {

Composition::~Composition() {
  const std::string id = id_of(Model::kKind);
  const CurrentCall current({.id = id, .hook = "destructor of its units", .kind = ""});
  units.units.clear();
}

std::string Composition::id_of(const std::string& kind) const {
  for (const ChosenPlugin& plugin : chosen)
    if (plugin.kind() == kind && plugin.selection.enabled) return plugin.id();
  return {};
}

std::vector<std::string> Composition::gradient_axes() const {
  std::vector<std::string> names;
  for (const Axis& axis : mesh->axes())
    if (axis.joins_gradients) names.push_back(axis.name);
  return names;
}

DeviceRuntime* Composition::device_runtime() const {
  DeviceRuntime* const runtime = drivetrain::device_runtime();
  if (!runtime && !services->device.is_cpu())
    throw fail(ErrorCode::internal, "the run is on ", services->device.str(), ", which nobody opened");
  return runtime;
}

int64_t Composition::batch_rank() const {
  int64_t index = 0, stride = 1;
  for (const Axis& axis : mesh->axes()) {
    const auto& names = mesh_plan.batch_axes;
    if (std::find(names.begin(), names.end(), axis.name) == names.end()) continue;
    index += axis.index * stride;
    stride *= axis.size;
  }
  return index;
}

}  // namespace drivetrain
