#include "state/gather.h"

#include <ATen/ops/zeros.h>

#include <drivetrain/error.h>

namespace drivetrain {

ParamGather::ParamGather(const std::vector<Trainables>& pieces, const Mesh& mesh, const at::Device& device)
    : mesh_(mesh), device_(device) {
  for (const Trainables& chunk : pieces)
    for (const Trainable& piece : chunk) add(piece);
}

void ParamGather::add(const Trainable& piece) {
  const Layout& layout = piece.layout;
  const std::string& name = piece.param->name;
  const int64_t whole = layout.global_numel(), end = layout.end < 0 ? whole : layout.end;
  if (layout.local_numel(mesh_) != whole)
    throw fail(ErrorCode::config,
               "final weights of a model that tensor parallelism shares out over ranks are not in this version (", name,
               "). Set save_final to false");
  const bool fits = layout.begin >= 0 && end <= whole && piece.value.numel() == end - layout.begin;
  if (!fits && piece.value.numel() > 0)  // one with no elements stands anywhere
    throw fail(ErrorCode::internal, name, ": a part of ", piece.value.numel(), " elements at ", layout.begin, " of ",
               whole);
  std::vector<Trainable>& known = pieces_[name];
  if (!known.empty() && known.front().layout.flat_axes != layout.flat_axes)
    throw fail(ErrorCode::internal, name, ": its parts are shared out over different axes");
  Trainable& held = known.emplace_back();
  held.param = piece.param, held.value = piece.value.detach(), held.layout = layout;
  shapes_[name] = layout.global_shape;
}

at::Tensor ParamGather::whole(const std::string& param) const {
  const auto found = pieces_.find(param);
  if (found == pieces_.end()) throw fail(ErrorCode::internal, param, " is not among what this rank holds");
  const std::vector<Trainable>& pieces = found->second;
  const GroupPtr group = mesh_.group(pieces.front().layout.flat_axes);
  const std::vector<int64_t>& shape = shapes_.at(param);
  const bool here =
      group->size() == 1 && pieces.size() == 1 && pieces.front().value.numel() == pieces.front().layout.global_numel();
  return here ? pieces.front().value.to(at::kFloat).view(shape) : joined(param, pieces, *group).view(shape);
}

// Every rank puts its parts into zeros. Read as integers, sums with zeros keep all bits, and no two ranks hold the same
// element. One integer more counts the elements.
at::Tensor ParamGather::joined(const std::string& param, const std::vector<Trainable>& pieces, Group& group) const {
  const int64_t numel = pieces.front().layout.global_numel();
  at::Tensor words = at::zeros({numel + 1}, at::TensorOptions().dtype(at::kInt).device(device_));
  const at::Tensor values = words.narrow(0, 0, numel).view(at::kFloat);
  int64_t held = 0;
  for (const Trainable& piece : pieces) {
    const int64_t count = piece.value.numel();
    if (count > 0) values.narrow(0, piece.layout.begin, count).copy_(piece.value);
    held += count;
  }
  at::Tensor count = words.narrow(0, numel, 1);
  count.fill_(static_cast<int64_t>(static_cast<int32_t>(held)));  // modulo 2^32, as sums are
  group.all_reduce(words)->wait();
  if (const auto all = count.item<int32_t>(); all != static_cast<int32_t>(numel))
    throw fail(ErrorCode::internal, param, ": the ranks hold ", all, " elements together, it has ", numel);
  return values;
}

}  // namespace drivetrain
