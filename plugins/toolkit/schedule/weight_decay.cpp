// Which tensors weight decay touches.
#include <drivetrain/toolkit/schedule/weight_decay.h>

#include <algorithm>

namespace drivetrain {

std::vector<Hyper> decay_groups(const WeightDecay& options, double lr, double momentum) {
  std::vector<Hyper> groups = {{lr, options.weight_decay, momentum}};
  if (options.decay == "matrices") groups.push_back({lr, 0, momentum});
  return groups;
}

int decay_group(const WeightDecay& options, const Param& param) {
  return options.decay == "matrices" && param.layout.global_shape.size() < 2 ? 1 : 0;
}

std::string decay_note(const WeightDecay& options, const std::vector<ParamPtr>& params) {
  const auto decaying =
      std::count_if(params.begin(), params.end(), [&](const ParamPtr& p) { return decay_group(options, *p) == 0; });
  const auto all = static_cast<std::ptrdiff_t>(params.size());
  if (options.weight_decay == 0 || decaying == all) return {};
  return concat("DeepSpeed would decay all ", all, " tensors of this file; ours decays the ", decaying,
                " with two or more dimensions (optimizer.params.decay = all gives DeepSpeed's)");
}

}  // namespace drivetrain
