// Initial values by the parameters' own rules: a function of (seed, name, global index), the same under every topology.
// Padding becomes zero. Memory: 1 MB beyond the values. Thread: main.
#pragma once

#include <vector>

#include <drivetrain/mesh.h>
#include <drivetrain/optimizer.h>

#include "internal.h"

namespace drivetrain {

DRIVETRAIN_INTERNAL void fill_initial_values(const std::vector<Trainables>& chunks, uint64_t seed, const Mesh& mesh);

// The same for some rows of one parameter. What `t.value` has of the others, and padding, stays.
struct RowsToFill {
  int64_t first = 0, count = 0;
};
void fill_initial_rows(const Trainable& t, RowsToFill rows, uint64_t seed, const Mesh& mesh);

}  // namespace drivetrain
