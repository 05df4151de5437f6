#include "checkpoint/load_state.h"

#include <ATen/ops/empty.h>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/layout/slice_boxes.h>

#include "checkpoint/held_state.h"

namespace drivetrain {
namespace {

constexpr const char* kOtherTag = "\n   go on from another checkpoint: --resume TAG";
constexpr size_t kMostProblems = 10;  // shown; the rest is counted

}  // namespace

LoadState::LoadState(const Checkpoint& checkpoint, const Value& counters, const Mesh& mesh)
    : checkpoint_(checkpoint), counters_(counters), mesh_(mesh) {
  for (StoredTensor& t : checkpoint.tensors()) stored_.emplace(t.name, t);
}

void LoadState::tensor(const std::string& name, at::Tensor& t, const Layout& layout) {
  used_.insert(name);
  const auto found = stored_.find(name);
  const at::IntArrayRef wanted = layout.global_shape;
  if (found == stored_.end()) return problems_.push_back(concat(name, " ", wanted));
  if (const at::IntArrayRef shape = found->second.shape; shape != wanted)
    return problems_.push_back(concat(name, " ", wanted, ": the checkpoint has ", shape));
  const SliceMap map = slice_map(layout, mesh_);
  at::Tensor flat = t.view(-1);
  if (map.padded()) flat.zero_();
  for (const SliceBox& box : map.boxes) {
    const at::Tensor place = map.in_held(box, flat);
    const at::Tensor host = place.is_cpu() ? place : at::empty(place.sizes(), place.options().device(at::kCPU));
    checkpoint_.read(name, {box.row, box.column, box.rows, box.columns}, host);
    if (!place.is_cpu()) place.copy_(host);
  }
}

const Value* LoadState::counter(const std::string& name) {
  used_.insert(name);
  const Value* stored = counters_.find(name);
  if (!stored) problems_.push_back("the counter " + name);
  return stored;
}

void LoadState::integer(const std::string& name, int64_t& value) {
  const Value* stored = counter(name);
  if (stored && !stored->is_int())
    throw fail(ErrorCode::checkpoint, "the counter ", name, " is ", stored->to_json(), "; wanted an integer",
               kOtherTag);
  if (stored) value = stored->as_int();
}

void LoadState::number(const std::string& name, double& value) {
  if (const Value* stored = counter(name)) value = stored_number(name, *stored);
}

void LoadState::throw_if_incomplete() const {
  if (problems_.empty()) return;
  std::string text =
      concat("the checkpoint does not hold ", problems_.size(), " parts of the state that this run needs:");
  for (size_t i = 0; i < std::min(problems_.size(), kMostProblems); ++i) text += "\n   " + problems_[i];
  if (problems_.size() > kMostProblems) text += concat("\n   and ", problems_.size() - kMostProblems, " more");
  throw fail(ErrorCode::checkpoint, text,
             "\n   it was saved by a run with another model, optimizer or precision: use the config of that run "
             "(resolved.json), or begin a new run in another output_dir");
}

std::set<std::string> LoadState::unused() const {
  std::set<std::string> names;
  for (const auto& [name, stored] : stored_)
    if (!used_.count(name)) names.insert(name);
  for (const auto& member : counters_.members())
    if (!used_.count(member.key)) names.insert(member.key);
  return names;
}

}  // namespace drivetrain
