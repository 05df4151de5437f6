#include "plan/prepared_run.h"

#include <algorithm>

#include "plugin_calls/plugin_call.h"

namespace drivetrain {

PreparedRun::~PreparedRun() {
  const std::string id = plan.id_of(Model::kKind);
  const CurrentCall current({.id = id, .hook = "destructor of its units", .kind = ""});
  units.units.clear();
}

DeviceRuntime* PreparedRun::device_runtime() const {
  DeviceRuntime* const runtime = drivetrain::device_runtime();
  if (!runtime && !services->device.is_cpu())
    throw fail(ErrorCode::internal, "the run is on ", services->device.str(), ", which nobody opened");
  return runtime;
}

std::vector<ParamPtr> PreparedRun::params_of_optimizer() const {
  std::vector<ParamPtr> params;
  for (const ParamPtr& param : model_params)
    if (param->trainable && !param_groups.sets_weight_decay(*param)) params.push_back(param);
  return params;
}

int64_t PreparedRun::batch_rank() const {
  int64_t index = 0, stride = 1;
  for (const Axis& axis : mesh->axes()) {
    const auto& names = plan.mesh.batch_axes;
    if (std::find(names.begin(), names.end(), axis.name) == names.end()) continue;
    index += axis.index * stride;
    stride *= axis.size;
  }
  return index;
}

}  // namespace drivetrain
