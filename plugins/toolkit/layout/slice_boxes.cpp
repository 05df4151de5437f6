#include <drivetrain/toolkit/layout/slice_boxes.h>

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

// One dimension's runs of neighbouring rows, with their places in the local slice.
struct HeldRun {
  int64_t local, global, count;
};

std::vector<HeldRun> held_runs(const Layout& layout, const Mesh& mesh, size_t dim, int64_t scale) {
  std::vector<HeldRun> runs;
  int64_t local = 0;
  for (const Layout::Range& range : layout.ranges(dim, mesh)) {
    if (range.count > 0) runs.push_back({local * scale, range.first * scale, range.count * scale});
    local += range.count;
  }
  return runs;
}

// Rows and columns of the local slice as matrices, and the runs of both.
struct SliceGrid {
  SliceGrid(const Layout& layout, const Mesh& mesh) {
    const std::vector<int64_t> shape = layout.local_shape(mesh);
    int64_t inner = 1;  // elements of what stands behind the second dimension
    for (size_t dim = 2; dim < shape.size(); ++dim) {
      if (shape[dim] != layout.global_shape[dim])
        throw fail(ErrorCode::internal, "a tensor is cut in dimension ", dim, "; only the first two can be");
      inner *= shape[dim];
    }
    rows = shape.empty() ? std::vector<HeldRun>{{0, 0, 1}} : held_runs(layout, mesh, 0, 1);
    columns = shape.size() < 2 ? std::vector<HeldRun>{{0, 0, 1}} : held_runs(layout, mesh, 1, inner);
    if (shape.size() >= 2) row = shape[1] * inner, global_row = layout.global_shape[1] * inner;
  }
  std::vector<HeldRun> rows, columns;
  int64_t row = 1, global_row = 1;  // elements
};

// What lies in rows [row, row_end), columns [column, column_end) of the local slice, whose element `begin` is the first
// held.
void add_boxes(const SliceGrid& grid, int64_t row, int64_t row_end, int64_t column, int64_t column_end, int64_t begin,
               std::vector<SliceBox>& boxes) {
  for (const HeldRun& r : grid.rows) {
    const int64_t r0 = std::max(row, r.local), r1 = std::min(row_end, r.local + r.count);
    for (const HeldRun& c : grid.columns) {
      const int64_t c0 = std::max(column, c.local), c1 = std::min(column_end, c.local + c.count);
      if (r0 >= r1 || c0 >= c1) continue;
      boxes.push_back({r0 - r.local + r.global, c0 - c.local + c.global, r1 - r0, c1 - c0, r0 * grid.row + c0 - begin});
    }
  }
}

}  // namespace

int64_t SliceMap::elements() const {
  int64_t sum = 0;
  for (const SliceBox& box : boxes) sum += box.rows * box.columns;
  return sum;
}

at::Tensor SliceMap::in_held(const SliceBox& box, const at::Tensor& value) const {
  return value.as_strided({box.rows, box.columns}, {local_columns, 1}, value.storage_offset() + box.held);
}

at::Tensor SliceMap::in_whole(const SliceBox& box, const at::Tensor& whole) const {
  return whole.as_strided({box.rows, box.columns}, {columns, 1},
                          whole.storage_offset() + box.row * columns + box.column);
}

SliceMap slice_map(const Layout& layout, const Mesh& mesh) {
  const int64_t numel = layout.local_numel(mesh), begin = layout.begin, end = layout.end < 0 ? numel : layout.end;
  SliceMap map;
  if (begin == end) return map;  // one with no elements stands anywhere
  if (begin < 0 || begin > end || end > numel)
    throw fail(ErrorCode::internal, "a layout's flat range [", begin, ", ", end, ") does not fit the local slice of ",
               numel, " elements");
  const SliceGrid grid(layout, mesh);
  map.columns = grid.global_row, map.local_columns = grid.row, map.held = end - begin;
  // The end of a row, whole rows, the beginning of one.
  const int64_t row = grid.row, first = begin / row, last = end / row;
  if (first == last) {
    add_boxes(grid, first, first + 1, begin % row, end % row, begin, map.boxes);
    return map;
  }
  const int64_t whole = (begin + row - 1) / row;
  if (begin % row != 0) add_boxes(grid, first, first + 1, begin % row, row, begin, map.boxes);
  add_boxes(grid, whole, last, 0, row, begin, map.boxes);
  if (end % row != 0) add_boxes(grid, last, last + 1, 0, end % row, begin, map.boxes);
  return map;
}

}  // namespace drivetrain
