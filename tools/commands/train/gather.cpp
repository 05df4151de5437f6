#include "train/gather.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <drivetrain/error.h>
#include <drivetrain/schedule.h>
#include <drivetrain/toolkit/layout/slice_boxes.h>

namespace drivetrain {
namespace {

// The mesh axes over which the parts of a parameter lie inside a stage, each once.
std::vector<std::string> axes_of_parts(const Layout& layout) {
  std::vector<std::string> axes = layout.flat_axes;
  for (const DimSplit& dim : layout.dims) axes.insert(axes.end(), dim.axes.begin(), dim.axes.end());
  return axes;
}

}  // namespace

ParamGather::ParamGather(const std::vector<Trainables>& pieces, const std::vector<ParamPtr>& params, const Mesh& mesh,
                         const at::Device& device)
    : mesh_(mesh), device_(device) {
  for (const ParamPtr& param : params) shapes_[param->name] = param->layout.global_shape;
  for (const Trainables& chunk : pieces)
    for (const Trainable& piece : chunk) add(piece);
}

void ParamGather::add(const Trainable& piece) {
  const std::string& name = piece.param->name;
  if (!shapes_.count(name)) throw fail(ErrorCode::internal, name, " is held by this rank and not in the model's list");
  if (const int64_t named = slice_map(piece.layout, mesh_).held; piece.value.numel() != named)
    throw fail(ErrorCode::internal, name, ": a part of ", piece.value.numel(), " elements, its layout names ", named);
  std::vector<Trainable>& known = pieces_[name];
  if (!known.empty() && known.front().layout.flat_axes != piece.layout.flat_axes)
    throw fail(ErrorCode::internal, name, ": its parts are sharded over different axes");
  Trainable& held = known.emplace_back();
  held.param = piece.param, held.value = piece.value.detach(), held.layout = piece.layout;
}

bool ParamGather::needs_peers() const {
  if (mesh_.group(Schedule::kAxis)->size() > 1) return true;
  for (const auto& [name, pieces] : pieces_)
    if (mesh_.group(axes_of_parts(pieces.front().layout))->size() > 1) return true;
  return false;
}

at::Tensor ParamGather::whole(const std::string& param) const {
  const auto shape = shapes_.find(param);
  if (shape == shapes_.end()) throw fail(ErrorCode::internal, param, " is not a parameter of the model");
  const GroupPtr stages = mesh_.group(Schedule::kAxis);
  if (stages->size() == 1) return of_this_stage(param).view(shape->second);
  // The first stage that holds it sends it to the others, which may have a copy or nothing.
  const int64_t holder = holder_of(param);
  at::Tensor values;
  if (holder == stages->rank()) {
    values = of_this_stage(param);
  } else {
    const int64_t numel = Layout::whole(shape->second).global_numel();
    values = at::empty({numel}, at::TensorOptions().dtype(at::kFloat).device(device_));
  }
  if (values.device() != device_) values = values.to(device_);
  stages->broadcast(values, holder)->wait();
  return values.view(shape->second);
}

int64_t ParamGather::holder_of(const std::string& param) const {
  if (holders_.empty()) {
    const GroupPtr stages = mesh_.group(Schedule::kAxis);
    const auto count = static_cast<int64_t>(shapes_.size());
    at::Tensor held = at::zeros({stages->size(), count}, at::TensorOptions().dtype(at::kInt));
    int64_t i = 0;
    for (const auto& [name, shape] : shapes_) held[stages->rank()][i++].fill_(pieces_.count(name) ? 1 : 0);
    at::Tensor all = held.to(device_);
    stages->all_reduce(all)->wait();
    held = all.to(at::kCPU);
    const int32_t* flags = held.const_data_ptr<int32_t>();
    i = 0;
    for (const auto& [name, shape] : shapes_) {
      int64_t stage = 0;
      while (stage < stages->size() && flags[stage * count + i] == 0) ++stage;
      holders_[name] = stage, ++i;
    }
  }
  const int64_t holder = holders_.at(param);
  if (holder == mesh_.size(Schedule::kAxis))
    throw fail(ErrorCode::internal, param, " is not among what any pipeline stage holds");
  return holder;
}

at::Tensor ParamGather::of_this_stage(const std::string& param) const {
  const auto found = pieces_.find(param);
  if (found == pieces_.end()) throw fail(ErrorCode::internal, param, " is not among what this rank holds");
  const std::vector<Trainable>& pieces = found->second;
  const GroupPtr group = mesh_.group(axes_of_parts(pieces.front().layout));
  if (group->size() == 1 && pieces.size() == 1) {
    const Trainable& piece = pieces.front();
    const SliceMap map = slice_map(piece.layout, mesh_);
    if (!map.padded() && map.held == piece.layout.global_numel()) return piece.value.to(at::kFloat);
  }
  return joined(param, pieces, *group);
}

// Every rank puts its parts into zeros. Read as integers, sums with zeros keep all bits, and no two ranks hold the same
// element. One integer more counts the elements.
at::Tensor ParamGather::joined(const std::string& param, const std::vector<Trainable>& pieces, Group& group) const {
  const int64_t numel = pieces.front().layout.global_numel();
  at::Tensor words = at::zeros({numel + 1}, at::TensorOptions().dtype(at::kInt).device(device_));
  const at::Tensor values = words.narrow(0, 0, numel).view(at::kFloat);
  int64_t held = 0;
  for (const Trainable& piece : pieces) {
    const SliceMap map = slice_map(piece.layout, mesh_);
    for (const SliceBox& box : map.boxes) map.in_whole(box, values).copy_(map.in_held(box, piece.value));
    held += map.elements();
  }
  at::Tensor count = words.narrow(0, numel, 1);
  count.fill_(static_cast<int64_t>(static_cast<int32_t>(held)));  // modulo 2^32, as sums are
  group.all_reduce(words)->wait();
  if (const auto all = count.item<int32_t>(); all != static_cast<int32_t>(numel))
    throw fail(ErrorCode::internal, param, ": the ranks hold ", all, " elements together, it has ", numel);
  return values;
}

}  // namespace drivetrain
