#include "checkpoint/held_state.h"

#include <cmath>
#include <cstdlib>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/layout/slice_boxes.h>

namespace drivetrain {

namespace {

Error visited_twice(const std::string& name) {
  return fail(ErrorCode::plugin, "the state ", name, " is visited twice\n   ",
              "a plugin's `state` must call each of its values by a name of its own");
}

}  // namespace

std::string HeldPart::key() const {
  return concat(name, "@", box.row, ",", box.column, "+", box.rows, ",", box.columns);
}

HeldState::HeldState(const Mesh& mesh, const RunState& state) : mesh_(mesh) {
  for (const StateOwner& owner : state) {
    changes_ = owner.changes, of_rank_0_ = owner.of_rank_0;
    owner.visit(*this);
  }
}

void HeldState::tensor(const std::string& name, at::Tensor& t, const Layout& layout) {
  const SliceMap map = slice_map(layout, mesh_);
  if (t.numel() != map.held)
    throw fail(ErrorCode::plugin, "visited ", name, " with ", t.numel(), " elements; its layout says ", map.held);
  if (map.held == 0) return;
  const at::Tensor flat = t.view(-1);
  for (const SliceBox& box : map.boxes) {
    parts_.push_back(
        {name, layout.global_shape, {box.row, box.column, box.rows, box.columns}, map.in_held(box, flat), changes_});
    if (!seen_.insert(parts_.back().key()).second) throw visited_twice(name);
  }
}

void HeldState::number(const std::string& name, double& value) {
  add(name, std::isfinite(value) ? Value(value) : Value(concat(value)));
}

void HeldState::add(const std::string& name, Value value) {
  if (counters_.find(name)) throw visited_twice(name);
  if (!of_rank_0_) common_counters_.set(name, value);
  counters_.set(name, std::move(value));
}

double stored_number(const std::string& name, const Value& stored) {
  if (stored.is_number()) return stored.as_double();
  const std::string text = stored.is_string() ? stored.as_string() : "";
  if (text == "inf" || text == "-inf" || text == "nan" || text == "-nan") return std::strtod(text.c_str(), nullptr);
  throw fail(ErrorCode::checkpoint, "the counter ", name, " is ", stored.to_json(), "; wanted a number",
             "\n   go on from another checkpoint: --resume TAG");
}

}  // namespace drivetrain
