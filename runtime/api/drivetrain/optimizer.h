// The optimizer sees float32 values, gradients and layouts, never strategies. It is called chunk by chunk, in one pass:
// reads grad and value, writes value (and working, the copy in compute dtype, where it is another tensor), in place:
// memory, shape and type of what it is given stay as they are. Thread: main; numeric loops on LibTorch's pool. Stream:
// the current one.
#pragma once

#include <ATen/core/Tensor.h>

#include <drivetrain/param.h>
#include <drivetrain/plugin.h>
#include <drivetrain/state.h>

DRIVETRAIN_CONTRACT(optimizer)

namespace drivetrain {

// A parameter, or a part of it that this rank updates.
// All tensors contiguous with the same number of elements, which may be 0.
// `value` and `grad` are on one device, `working` may be on another.
struct Trainable {
  ParamPtr param;
  at::Tensor value;        // float32 master
  at::Tensor working;      // what units compute with; the same tensor as value if the dtypes agree
  at::Tensor grad;         // sum of gradients, unscaled (see UpdateArgs)
  at::Tensor device_grad;  // where grad is a copy on another device: what it is a copy of, for the norm
  Layout layout;           // of the three
  int group = 0;           // hyperparameter group, given by Optimizer::group_of
};
using Trainables = std::vector<Trainable>;

// Hyperparameters of one group as a schedule sets them.
struct Hyper {
  double lr = 0, weight_decay = 0, momentum = 0;
};

// Scalars on the run's device, so that a captured step can replay.
struct UpdateArgs {
  at::Tensor hyper;       // float64 [groups, 3]: lr, weight decay, momentum
  at::Tensor grad_scale;  // float64 scalar: gradients are multiplied by it (clip factor / tokens / loss scale)
  at::Tensor skip;        // bool scalar: leave everything as it is
  at::Tensor step;        // int64 scalar: updates applied so far; this one is step + 1
};

class DRIVETRAIN_API Optimizer : public Plugin {
 public:
  static constexpr const char* kKind = "optimizer";
  ~Optimizer() override;

  virtual std::vector<Hyper> groups() const = 0;       // starting hyperparameters, before the schedule
  virtual int group_of(const Param& param) const = 0;  // which of them
  virtual double state_bytes_per_element() const = 0;  // for the memory estimate
  // One line on where this differs from DeepSpeed for these parameters, empty if nowhere.
  virtual std::string difference_note(const std::vector<ParamPtr>& params) const { return {}; }

  virtual void init(const Trainables& all) = 0;  // allocates moments, with the trainables' layouts
  virtual void update(const Trainables& chunk, const UpdateArgs& args) = 0;
  virtual void state(StateVisitor& visitor) = 0;  // what `init` allocated, and counters
};

}  // namespace drivetrain
