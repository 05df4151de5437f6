// What a rank holds of a run's state, as one StateVisitor sees it: parts of tensors, each as a rectangle of the whole
// tensor, and numbers. Main thread, between two steps.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>
#include <drivetrain/mesh.h>
#include <drivetrain/state.h>
#include <drivetrain/value.h>

#include "internal.h"
#include "run/state_owner.h"

namespace drivetrain {

struct HeldPart {
  std::string name;            // of the tensor, with its owner: "model/block.0.norm1.weight"
  std::vector<int64_t> shape;  // of the whole tensor, without padding
  StateBox box;
  at::Tensor view;  // [rows, columns] of the owner's memory, on its device
  StateOwner::Changes changes = StateOwner::Changes::any_time;

  uint64_t bytes() const { return static_cast<uint64_t>(view.numel()) * view.element_size(); }
  // What two ranks with copies of one part have in common.
  std::string key() const;
};

// Keeps views of the tensors: valid until the next step. Error(plugin) if a layout does not fit its tensor, or if one
// part of a tensor, or a counter, is visited twice.
class DRIVETRAIN_INTERNAL HeldState final : public StateVisitor {
 public:
  explicit HeldState(const Mesh& mesh) : mesh_(mesh) {}
  HeldState(const Mesh& mesh, const RunState& state);

  void tensor(const std::string& name, at::Tensor& t, const Layout& layout) override;
  void integer(const std::string& name, int64_t& value) override { add(name, value); }
  void number(const std::string& name, double& value) override;

  const std::vector<HeldPart>& parts() const { return parts_; }
  // All integers and numbers by name; an object. A number that is not finite is written as a string.
  const Value& counters() const { return counters_; }
  // Those that are the same on every rank.
  const Value& common_counters() const { return common_counters_; }

 private:
  void add(const std::string& name, Value value);

  const Mesh& mesh_;
  std::vector<HeldPart> parts_;
  std::set<std::string> seen_;  // keys of the parts
  Value counters_ = Value::object(), common_counters_ = Value::object();
  StateOwner::Changes changes_ = StateOwner::Changes::any_time;  // of the owner that is visited
  bool of_rank_0_ = false;                                       // it is, too
};

// The inverse of counters(): Error(checkpoint) naming the counter if `stored` is not of the type.
DRIVETRAIN_INTERNAL double stored_number(const std::string& name, const Value& stored);

}  // namespace drivetrain
