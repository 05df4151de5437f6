// The calls of the optimizer, and what is looked at once: groups that exist, state that is there, tensors that an
// update left as they were in shape, type and place. What it throws is named. Main thread of a rank.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/optimizer.h>

#include "internal.h"
#include "step/param_groups.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL OptimizerGuard {
 public:
  // `id`: the optimizer's name. The optimizer outlives this.
  OptimizerGuard(std::string id, Optimizer& optimizer, ParamGroups param_groups)
      : id_(std::move(id)), optimizer_(optimizer), param_groups_(std::move(param_groups)) {}

  std::vector<Hyper> groups();  // as many as the first time
  int64_t rows() { return param_groups_.rows(groups().size()); }
  // Gives every trainable its row of UpdateArgs::hyper (param_groups.h), then its state: init.
  void start(std::vector<Trainables>& chunks);
  void update(const Trainables& chunk, const UpdateArgs& args);
  // After all chunks: the first time, the state is looked at again.
  void updated();

 private:
  void check_state() const;

  const std::string id_;
  Optimizer& optimizer_;
  const ParamGroups param_groups_;
  size_t group_count_ = 0;  // 0: nobody asked yet
  Trainables all_;          // what `init` was shown stays
  bool known_ = false;      // a whole update was looked at
};

}  // namespace drivetrain
