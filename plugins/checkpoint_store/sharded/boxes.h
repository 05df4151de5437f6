// Rectangles of a tensor's elements: areas, intersections, what is left over. Pure functions; any thread.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>

namespace drivetrain::sharded {

inline int64_t area(const StateBox& box) { return box.rows * box.columns; }

inline StateBox intersection(const StateBox& a, const StateBox& b) {
  StateBox both{std::max(a.row, b.row), std::max(a.column, b.column), 0, 0};
  both.rows = std::max<int64_t>(0, std::min(a.row + a.rows, b.row + b.rows) - both.row);
  both.columns = std::max<int64_t>(0, std::min(a.column + a.columns, b.column + b.columns) - both.column);
  return both;
}

// The tensor's elements as a matrix; no value where their number overflows 64 bits or a size is negative.
inline std::optional<StateBox> whole_box(const std::vector<int64_t>& shape) {
  StateBox box{0, 0, 1, 1};
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0) return std::nullopt;
    int64_t& side = i == 0 ? box.rows : box.columns;
    if (__builtin_mul_overflow(side, shape[i], &side)) return std::nullopt;
  }
  int64_t elements = 0;
  if (__builtin_mul_overflow(box.rows, box.columns, &elements) || elements > (int64_t{1} << 58)) return std::nullopt;
  return box;
}

inline bool contains(const StateBox& outer, const StateBox& inner) {
  return inner.row >= 0 && inner.column >= 0 && inner.rows >= 0 && inner.columns >= 0 && inner.row >= outer.row &&
         inner.column >= outer.column && inner.rows <= outer.rows && inner.columns <= outer.columns &&
         inner.row - outer.row <= outer.rows - inner.rows &&
         inner.column - outer.column <= outer.columns - inner.columns;
}

// Also of a box that cannot be: sums as a damaged file gives them.
inline std::string box_text(const StateBox& box) {
  const auto end = [](int64_t begin, int64_t count) {
    return static_cast<uint64_t>(begin) + static_cast<uint64_t>(count);
  };
  return concat("rows ", box.row, " to ", end(box.row, box.rows), ", columns ", box.column, " to ",
                end(box.column, box.columns));
}

}  // namespace drivetrain::sharded
