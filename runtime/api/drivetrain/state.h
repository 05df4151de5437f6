// The state that a restart needs. An object that keeps something from step to step passes it to a StateVisitor in its
// `state` call. A visitor that saves reads the values, a visitor that loads writes them, so the same code does both.
// Thread: main, between two steps (Optimizer::state also as its header says).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include <drivetrain/export.h>
#include <drivetrain/layout.h>

DRIVETRAIN_CONTRACT(state)

namespace drivetrain {

// Names need to be unique within one object only ("block.0.attn.qkv.weight.exp_avg"): the runtime adds the plugin's
// name. They do not depend on the mesh: if several ranks hold parts of a tensor, it has the same name on all of them,
// and the layout says which part this rank has. An object visits the same names in the same order in every call.
class DRIVETRAIN_API StateVisitor {
 public:
  virtual ~StateVisitor();
  // `t` is defined. A visitor that loads writes its elements in place; memory, shape and dtype do not change. The
  // visitor does not keep `t` after the call.
  virtual void tensor(const std::string& name, at::Tensor& t, const Layout& layout) = 0;
  // The value is the same on every rank.
  virtual void integer(const std::string& name, int64_t& value) = 0;
  virtual void number(const std::string& name, double& value) = 0;
};

}  // namespace drivetrain
