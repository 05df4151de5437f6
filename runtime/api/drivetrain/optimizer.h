// The optimizer updates the parameters. It sees values, gradients and layouts, never strategies. `update` reads grad
// and value, and writes value and working in place: memory, shape, dtype and device of these tensors must not change.
// Calls in order: groups and group_of, init, then in each step groups and one update per list of trainables.
// `init` and `update` may be collective: all ranks of a pipeline stage call them in the same order (Services::mesh).
// Thread: main; numeric loops on LibTorch's thread pool. Stream: the current one; nothing synchronises.
#pragma once

#include <ATen/core/Tensor.h>

#include <drivetrain/param.h>
#include <drivetrain/plugin.h>
#include <drivetrain/state.h>

DRIVETRAIN_CONTRACT(optimizer)

namespace drivetrain {

// A parameter, or the part of it that this rank updates. All tensors are contiguous and have the same number of
// elements, which may be 0. `value` and `grad` are on one device (the host with offload); `working` may be on another.
// Owned by the data-parallel strategy.
struct Trainable {
  ParamPtr param;
  at::Tensor value;        // float32 master weights
  at::Tensor working;      // the parameter that units compute with; the same tensor as value if the dtypes are equal
  at::Tensor grad;         // sum of gradients; multiply by UpdateArgs::grad_scale
  at::Tensor device_grad;  // if grad is a copy on the host: the original on the device, from which the norm is computed
  Layout layout;           // of value, working and grad
  int group = 0;           // hyperparameter group, given by Optimizer::group_of
};
using Trainables = std::vector<Trainable>;

// Hyperparameters of one group.
struct Hyper {
  double lr = 0, weight_decay = 0, momentum = 0;
};

// Scalars on the device of the trainables' values, so that a CUDA graph that was recorded with them can be replayed.
struct UpdateArgs {
  at::Tensor hyper;       // float64 [groups, 3]: lr, weight decay, momentum
  at::Tensor grad_scale;  // float64 scalar, multiply gradients by it: clip factor / tokens / loss scale
  at::Tensor skip;        // bool scalar; true: change nothing. False in every call of this version
  at::Tensor step;        // int64 scalar: updates before this one; this one has number step + 1
};

class DRIVETRAIN_API Optimizer : public Plugin {
 public:
  static constexpr const char* kKind = "optimizer";
  ~Optimizer() override;

  // One entry per hyperparameter group, at least one, as the configuration sets them. Called before the first step and
  // in every step; always returns the same.
  virtual std::vector<Hyper> groups() const = 0;
  // Index into groups(). Called once per trainable, before `init`.
  virtual int group_of(const Param& param) const = 0;
  // Bytes of state that `init` allocates per element of this parameter. Called after `plan`, once per trainable
  // parameter, for the memory estimate.
  virtual double state_bytes_per_element(const Param& param) const = 0;
  // Bytes of host memory per updated element, beside the state, where values are on the host and parameters on a
  // device, as for copies in the type in which they are sent. `param`: the type of the parameters. Called after `plan`,
  // once per pipeline stage, if a plugin declared PlanContext::updates_on_host with `to_device`; counted only there.
  virtual double host_bytes_per_element(at::ScalarType param) const { return 0; }
  // Whether `update` computes with all elements of the parameter at once (Muon), and not element by element. It then
  // collects them from the ranks that hold parts (toolkit/sharding/whole_tensors.h). Always the same. Read by the plan.
  virtual bool wants_whole(const Param& param) const { return false; }
  // One line that says how the result for these parameters differs from DeepSpeed's; empty: it does not. For the log.
  // Called once, on rank 0, before the first step.
  virtual std::string difference_note(const std::vector<ParamPtr>& params) const { return {}; }

  // Called once, after the values are filled, with all trainables of this rank in the order of the updates. Allocates
  // the state (moments), each tensor on the device of the trainable's value.
  virtual void init(const Trainables& all) = 0;
  // Called in every step once per list of DataParallel::trainables, always with the same lists in the same order, and
  // with the tensors of `init`. When the first list of a step comes, the gradients of all lists are final. Not called
  // in a step that the runtime skips because gradients are not finite.
  virtual void update(const Trainables& chunk, const UpdateArgs& args) = 0;
  // Visits the tensors of `init`, with the trainables' layouts, and the counters (state.h). Called for restarts, and by
  // the runtime after `init`, after the first update and for the memory report.
  virtual void state(StateVisitor& visitor) = 0;
};

}  // namespace drivetrain
