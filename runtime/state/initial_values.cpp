#include "state/initial_values.h"

#include <ATen/ops/empty.h>

#include <drivetrain/error.h>
#include <drivetrain/random.h>

namespace drivetrain {
namespace {

// The local slice of a parameter that tensor parallelism cuts: runs of neighbouring global elements, drawn one by one.
at::Tensor draw_cut(const Trainable& t, uint64_t seed, const Mesh& mesh) {
  const std::vector<int64_t> shape = t.layout.local_shape(mesh);
  if (shape.size() > 2)
    throw fail(ErrorCode::internal, t.param->name, ": a cut tensor of ", shape.size(), " dimensions");
  at::Tensor local = at::empty({t.layout.local_numel(mesh)}, at::TensorOptions(at::kFloat));
  const int64_t row_length = shape.size() == 2 ? t.layout.global_shape[1] : 1;
  int64_t at = 0;
  for (const Layout::Range rows : t.layout.ranges(0, mesh))
    for (int64_t r = rows.first; r < rows.first + rows.count; ++r) {
      const auto columns = shape.size() == 2 ? t.layout.ranges(1, mesh) : std::vector<Layout::Range>{{0, 1}};
      for (const Layout::Range c : columns) {
        at::Tensor run = local.narrow(0, at, c.count);
        fill_normal(run, seed, t.param->name, r * row_length + c.first, t.param->init.std);
        at += c.count;
      }
    }
  return local;
}

void fill_one(const Trainable& t, uint64_t seed, const Mesh& mesh) {
  at::Tensor value = t.value;
  switch (t.param->init.kind) {
    case InitRule::Kind::zeros:
      value.zero_();
      return;
    case InitRule::Kind::ones:
      value.fill_(1);
      return;
    case InitRule::Kind::normal:
      break;
  }
  const int64_t count = value.numel();
  if (t.layout.local_numel(mesh) != t.layout.global_numel()) {
    value.copy_(draw_cut(t, seed, mesh).narrow(0, t.layout.begin, count));
  } else if (value.scalar_type() == at::kFloat) {
    fill_normal(value, seed, t.param->name, t.layout.begin, t.param->init.std);
  } else {  // a frozen parameter has no float32 master
    at::Tensor drawn = at::empty({count}, at::TensorOptions(at::kFloat));
    fill_normal(drawn, seed, t.param->name, t.layout.begin, t.param->init.std);
    value.copy_(drawn);
  }
}

}  // namespace

void fill_initial_values(const std::vector<Trainables>& chunks, uint64_t seed, const Mesh& mesh) {
  for (const Trainables& chunk : chunks)
    for (const Trainable& t : chunk) fill_one(t, seed, mesh);
}

}  // namespace drivetrain
