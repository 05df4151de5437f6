#include "checkpoint_tools/elements.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace drivetrain {
namespace {

constexpr size_t kFirst = 8;

at::Tensor read_as(const Checkpoint& checkpoint, const std::string& name, const StateBox& box, at::ScalarType dtype) {
  const at::Tensor values = at::empty({box.rows, box.columns}, at::TensorOptions(dtype));
  checkpoint.read(name, box, values);
  return values;
}

void add_difference(double a, double b, ElementDifference& difference) {
  ++difference.differing;
  if (!std::isfinite(a) || !std::isfinite(b)) {
    ++difference.not_finite;
    return;
  }
  const double absolute = std::abs(a - b), largest = std::max(std::abs(a), std::abs(b));
  difference.absolute = std::max(difference.absolute, absolute);
  if (largest > 0) difference.relative = std::max(difference.relative, absolute / largest);
}

// Of elements of one dtype, of which some have other bits.
void compare_bits(const at::Tensor& a, const at::Tensor& b, ElementDifference& difference) {
  const auto* const bytes_a = static_cast<const char*>(a.const_data_ptr());
  const auto* const bytes_b = static_cast<const char*>(b.const_data_ptr());
  if (std::memcmp(bytes_a, bytes_b, a.nbytes()) == 0) return;
  const at::Tensor values_a = a.to(at::kDouble), values_b = b.to(at::kDouble);
  const double *const doubles_a = values_a.const_data_ptr<double>(), *const doubles_b =
                                                                         values_b.const_data_ptr<double>();
  const size_t width = a.element_size();
  for (int64_t i = 0; i < a.numel(); ++i)
    if (const size_t at = static_cast<size_t>(i) * width; std::memcmp(bytes_a + at, bytes_b + at, width) != 0)
      add_difference(doubles_a[i], doubles_b[i], difference);
}

void compare_values(const at::Tensor& a, const at::Tensor& b, ElementDifference& difference) {
  const double *const values_a = a.const_data_ptr<double>(), *const values_b = b.const_data_ptr<double>();
  for (int64_t i = 0; i < a.numel(); ++i) {
    const bool both_nan = std::isnan(values_a[i]) && std::isnan(values_b[i]);
    if (values_a[i] != values_b[i] && !both_nan) add_difference(values_a[i], values_b[i], difference);
  }
}

}  // namespace

StateBox box_of_shape(const std::vector<int64_t>& shape) {
  StateBox box{0, 0, 1, 1};
  for (size_t i = 0; i < shape.size(); ++i) (i == 0 ? box.rows : box.columns) *= shape[i];
  return box;
}

int64_t elements_of(const std::vector<int64_t>& shape) {
  const StateBox box = box_of_shape(shape);
  return box.rows * box.columns;
}

uint64_t bytes_of(const StoredTensor& tensor) {
  return static_cast<uint64_t>(elements_of(tensor.shape)) * c10::elementSize(tensor.dtype);
}

std::vector<StateBox> cut_box(const StateBox& box, int64_t most) {
  std::vector<StateBox> parts;
  if (box.rows == 0 || box.columns == 0) return parts;
  const int64_t columns = std::min(box.columns, most), rows = std::max<int64_t>(1, most / box.columns);
  for (int64_t row = 0; row < box.rows; row += rows)
    for (int64_t column = 0; column < box.columns; column += columns)
      parts.push_back({box.row + row, box.column + column, std::min(rows, box.rows - row),
                       std::min(columns, box.columns - column)});
  return parts;
}

at::Tensor read_doubles(const Checkpoint& checkpoint, const std::string& name, const StateBox& box) {
  return read_as(checkpoint, name, box, at::kDouble);
}

ElementStatistics statistics_of(const Checkpoint& checkpoint, const StoredTensor& tensor) {
  ElementStatistics s;
  double sum = 0, squares = 0;
  for (const StateBox& box : cut_box(box_of_shape(tensor.shape), kElementsAtOnce)) {
    const at::Tensor values = read_doubles(checkpoint, tensor.name, box);
    const double* const data = values.const_data_ptr<double>();
    for (int64_t i = 0; i < values.numel(); ++i) {
      const double x = data[i];
      if (s.first.size() < kFirst) s.first.push_back(x);
      const bool none_before = s.elements++ == s.non_finite;
      if (!std::isfinite(x)) {
        ++s.non_finite;
        continue;
      }
      s.min = none_before ? x : std::min(s.min, x), s.max = none_before ? x : std::max(s.max, x);
      sum += x, squares += x * x;
    }
  }
  const int64_t finite = s.elements - s.non_finite;
  s.mean = finite == 0 ? 0 : sum / static_cast<double>(finite), s.l2 = std::sqrt(squares);
  return s;
}

ElementDifference difference_of(const Checkpoint& a, const StoredTensor& of_a, const Checkpoint& b,
                                const StoredTensor& of_b) {
  ElementDifference difference;
  for (const StateBox& box : cut_box(box_of_shape(of_a.shape), kElementsAtOnce)) {
    if (of_a.dtype == of_b.dtype)
      compare_bits(read_as(a, of_a.name, box, of_a.dtype), read_as(b, of_b.name, box, of_b.dtype), difference);
    else
      compare_values(read_doubles(a, of_a.name, box), read_doubles(b, of_b.name, box), difference);
  }
  return difference;
}

}  // namespace drivetrain
