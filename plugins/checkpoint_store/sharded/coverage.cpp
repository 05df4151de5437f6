#include "coverage.h"

#include "boxes.h"

namespace drivetrain::sharded {

std::vector<StateBox> without(const std::vector<StateBox>& boxes, const StateBox& cut) {
  std::vector<StateBox> left;
  const auto keep = [&](int64_t row, int64_t column, int64_t rows, int64_t columns) {
    if (rows > 0 && columns > 0) left.push_back({row, column, rows, columns});
  };
  for (const StateBox& box : boxes) {
    const StateBox hole = intersection(box, cut);
    if (area(hole) == 0) {
      left.push_back(box);
      continue;
    }
    const int64_t bottom = hole.row + hole.rows, right = hole.column + hole.columns;
    keep(box.row, box.column, hole.row - box.row, box.columns);
    keep(hole.row, box.column, hole.rows, hole.column - box.column);
    keep(hole.row, right, hole.rows, box.column + box.columns - right);
    keep(bottom, box.column, box.row + box.rows - bottom, box.columns);
  }
  return left;
}

std::string coverage_problem(const StateBox& whole, const std::vector<StateBox>& slices) {
  std::vector<StateBox> left;
  if (area(whole) > 0) left.push_back(whole);
  for (const StateBox& slice : slices) {
    int64_t fresh = 0;
    for (const StateBox& box : left) fresh += area(intersection(box, slice));
    if (fresh != area(slice)) return "elements of " + box_text(slice) + " are there twice";
    left = without(left, slice);
  }
  return left.empty() ? "" : box_text(left.front()) + " are in no file";
}

}  // namespace drivetrain::sharded
