// The elements of stored tensors, a few MB at a time, so that a tensor may be larger than memory. Thread: any.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>

#include "internal.h"

namespace drivetrain {

// The tensor as StateBox sees it.
DRIVETRAIN_INTERNAL StateBox box_of_shape(const std::vector<int64_t>& shape);
int64_t elements_of(const std::vector<int64_t>& shape);
uint64_t bytes_of(const StoredTensor& tensor);

// Cuts `box` into boxes of at most `most` elements, in the order of the elements: whole rows, or parts of one row.
// Returns none for a box without elements.
DRIVETRAIN_INTERNAL std::vector<StateBox> cut_box(const StateBox& box, int64_t most);

// How many elements the functions of these tools read at once.
inline constexpr int64_t kElementsAtOnce = int64_t{1} << 20;

// Elements of a box as float64 [rows, columns], contiguous.
at::Tensor read_doubles(const Checkpoint& checkpoint, const std::string& name, const StateBox& box);

struct ElementStatistics {
  int64_t elements = 0, non_finite = 0;
  double min = 0, max = 0, mean = 0, l2 = 0;  // over the finite elements; 0 if there is none
  std::vector<double> first;                  // of all elements, up to eight
};
DRIVETRAIN_INTERNAL ElementStatistics statistics_of(const Checkpoint& checkpoint, const StoredTensor& tensor);

struct ElementDifference {
  int64_t differing = 0;   // elements whose bits differ, or their values where the dtypes do
  int64_t not_finite = 0;  // of them: NaN or infinite on one side at least
  double absolute = 0;     // largest |a - b| of finite elements
  double relative = 0;     // largest |a - b| / max(|a|, |b|) of finite elements
};
// Both tensors have one shape.
DRIVETRAIN_INTERNAL ElementDifference difference_of(const Checkpoint& a, const StoredTensor& of_a, const Checkpoint& b,
                                                    const StoredTensor& of_b);

}  // namespace drivetrain
