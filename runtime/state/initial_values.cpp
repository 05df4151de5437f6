#include "state/initial_values.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/erf.h>

#include <algorithm>
#include <numbers>

#include <drivetrain/error.h>
#include <drivetrain/random.h>
#include <drivetrain/toolkit/layout/slice_boxes.h>

namespace drivetrain {
namespace {

constexpr int64_t kDrawnTogether = 1 << 18;  // elements: 1 MB
constexpr int64_t kDrawUnit = 1024;          // a draw makes so many numbers at least

// Elements of the parameter from `begin` on. Of a normal number z, erf(z / sqrt 2) is uniform between -1 and 1.
void draw(at::Tensor& out, const Param& param, uint64_t seed, int64_t begin) {
  const bool uniform = param.init.kind == InitRule::Kind::uniform;
  fill_normal(out, seed, param.name, begin, uniform ? 1 : param.init.std);
  if (uniform) out.div_(std::numbers::sqrt2).erf_().mul_(param.init.std);
}

// Columns of a wide row one row at a time; narrow ones out of whole rows, since a short run draws more than it needs.
void draw_box(const SliceBox& box, int64_t columns, const Param& param, uint64_t seed, const at::Tensor& to) {
  const auto options = at::TensorOptions(at::kFloat);
  const bool whole_rows = box.columns == columns || box.columns + kDrawUnit >= columns;
  const int64_t width = whole_rows ? columns : box.columns;
  const int64_t some = std::max<int64_t>(1, kDrawnTogether / width);
  for (int64_t row = 0; row < box.rows; row += some) {
    const int64_t rows = std::min(some, box.rows - row), first = (box.row + row) * columns;
    at::Tensor drawn = at::empty({rows * width}, options);
    if (whole_rows) {
      draw(drawn, param, seed, first);
    } else {
      at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
        const at::NoGradGuard no_grad;  // of this thread
        for (int64_t r = begin; r < end; ++r) {
          at::Tensor run = drawn.narrow(0, r * width, width);
          draw(run, param, seed, first + r * columns + box.column);
        }
      });
    }
    const at::Tensor mine = drawn.view({rows, width}).narrow(1, whole_rows ? box.column : 0, box.columns);
    to.narrow(0, row, rows).copy_(mine);
  }
}

void draw_values(const Trainable& t, const SliceMap& map, uint64_t seed, const at::Tensor& value) {
  for (const SliceBox& box : map.boxes) {
    const bool run = box.rows == 1 || (box.columns == map.columns && box.columns == map.local_columns);
    if (run && value.scalar_type() == at::kFloat) {  // a frozen parameter may have no float32 master
      at::Tensor to = value.narrow(0, box.held, box.rows * box.columns);
      draw(to, *t.param, seed, box.row * map.columns + box.column);
    } else {
      draw_box(box, map.columns, *t.param, seed, map.in_held(box, value));
    }
  }
}

void fill_boxes(const Trainable& t, const SliceMap& map, uint64_t seed) {
  const at::Tensor value = t.value.detach();
  const InitRule::Kind kind = t.param->init.kind;
  if (kind == InitRule::Kind::normal || kind == InitRule::Kind::uniform) return draw_values(t, map, seed, value);
  for (const SliceBox& box : map.boxes) map.in_held(box, value).fill_(kind == InitRule::Kind::ones ? 1 : 0);
}

void fill_one(const Trainable& t, uint64_t seed, const Mesh& mesh) {
  const SliceMap map = slice_map(t.layout, mesh);
  if (t.value.numel() != map.held)
    throw fail(ErrorCode::internal, t.param->name, ": a part of ", t.value.numel(), " elements, its layout names ",
               map.held);
  if (map.padded()) t.value.detach().zero_();
  fill_boxes(t, map, seed);
}

}  // namespace

void fill_initial_values(const std::vector<Trainables>& chunks, uint64_t seed, const Mesh& mesh) {
  for (const Trainables& chunk : chunks)
    for (const Trainable& t : chunk) fill_one(t, seed, mesh);
}

void fill_initial_rows(const Trainable& t, RowsToFill rows, uint64_t seed, const Mesh& mesh) {
  SliceMap map = slice_map(t.layout, mesh);
  std::vector<SliceBox> boxes;
  for (SliceBox box : map.boxes) {
    const int64_t first = std::max(box.row, rows.first);
    const int64_t count = std::min(box.row + box.rows, rows.first + rows.count) - first;
    if (count <= 0) continue;
    box.held += (first - box.row) * map.local_columns, box.row = first, box.rows = count;
    boxes.push_back(box);
  }
  map.boxes = std::move(boxes);
  fill_boxes(t, map, seed);
}

}  // namespace drivetrain
