// The config's parameter groups at the end of a step: the optimizer's groups stand once for the parameters in none of
// them, and once more for each. So every optimizer honours them by Trainable::group alone. Value semantics; any thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/optimizer.h>

#include "internal.h"

namespace drivetrain {

// What a group sets; nothing: as the optimizer has it.
struct ParamRates {
  std::optional<double> lr, weight_decay;
};

class DRIVETRAIN_INTERNAL ParamGroups {
 public:
  void add(const ParamRates& rates, const std::vector<ParamPtr>& params);

  // Whether a group of the config sets the parameter's weight decay.
  bool sets_weight_decay(const Param& param) const;
  // The optimizer's groups are the first rows, and those that it gives to parameters in no group.
  int64_t rows(size_t optimizer_groups) const { return static_cast<int64_t>(optimizer_groups * (1 + rates_.size())); }
  int row_of(const Param& param, int optimizer_group, size_t optimizer_groups) const;
  // Of every row. `base`: the optimizer's groups; `now`: the same as the schedule has them in this step, which what a
  // group sets follows in proportion.
  std::vector<Hyper> hypers(const std::vector<Hyper>& base, const std::vector<Hyper>& now) const;

 private:
  std::vector<ParamRates> rates_;
  std::map<std::string, size_t> group_of_;  // by the parameter's name
};

}  // namespace drivetrain
