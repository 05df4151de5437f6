#include "step/param_groups.h"

namespace drivetrain {
namespace {

// Where the schedule leaves the optimizer's number as it is, the group's is what the config says, to the last bit.
double in_proportion(double own, double base, double now) { return base == 0 ? own : own * (now / base); }

}  // namespace

void ParamGroups::add(const ParamRates& rates, const std::vector<ParamPtr>& params) {
  for (const ParamPtr& param : params) group_of_[param->name] = rates_.size();
  rates_.push_back(rates);
}

bool ParamGroups::sets_weight_decay(const Param& param) const {
  const auto found = group_of_.find(param.name);
  return found != group_of_.end() && rates_[found->second].weight_decay.has_value();
}

int ParamGroups::row_of(const Param& param, int optimizer_group, size_t optimizer_groups) const {
  const auto found = group_of_.find(param.name);
  if (found == group_of_.end()) return optimizer_group;
  return optimizer_group + static_cast<int>(optimizer_groups * (1 + found->second));
}

std::vector<Hyper> ParamGroups::hypers(const std::vector<Hyper>& base, const std::vector<Hyper>& now) const {
  std::vector<Hyper> rows = now;
  for (const ParamRates& rates : rates_)
    for (size_t g = 0; g < base.size(); ++g) {
      Hyper row = now[g];
      if (rates.lr) row.lr = in_proportion(*rates.lr, base[g].lr, now[g].lr);
      if (rates.weight_decay)
        row.weight_decay = in_proportion(*rates.weight_decay, base[g].weight_decay, now[g].weight_decay);
      rows.push_back(row);
    }
  return rows;
}

}  // namespace drivetrain
