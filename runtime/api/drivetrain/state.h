// What a restart needs. Whoever keeps something from step to step shows it to a StateVisitor; one that saves reads what
// it is shown, one that loads writes it, so the same code does both. Thread: main, between two steps.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include <drivetrain/export.h>
#include <drivetrain/layout.h>

DRIVETRAIN_CONTRACT(state)

namespace drivetrain {

// Names are the visited object's own ("block.0.attn.qkv.weight.exp_avg"): the runtime puts the plugin in front of them.
// They do not depend on the mesh: a tensor that several ranks hold parts of has one name on all of them, and the layout
// says which part this rank has. An object visits the same names in the same order on every call.
class DRIVETRAIN_API StateVisitor {
 public:
  virtual ~StateVisitor();
  // `t` is defined. One that loads writes its elements in place: memory, shape and type stay.
  virtual void tensor(const std::string& name, at::Tensor& t, const Layout& layout) = 0;
  // The same on every rank.
  virtual void integer(const std::string& name, int64_t& value) = 0;
  virtual void number(const std::string& name, double& value) = 0;
};

}  // namespace drivetrain
