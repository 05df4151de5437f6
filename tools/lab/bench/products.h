// The matrix products a training step is made of, timed alone: the bound that the whole step is compared with.
#pragma once

#include "bench/timing.h"
#include "plan/prepared_run.h"

namespace drivetrain {

// y [rows, out] = x [rows, in] W^T, and the two products of its backward; the matrices of a layer's experts together,
// with equal shares of the rows.
struct Product {
  int64_t rows = 0, out = 0, in = 0, groups = 1;  // rows: of all groups together
  int64_t count = 0;   // how many matrices of this shape, or layers of such experts, the model has
  double seconds = 0;  // of the three together, the least of several times
  double flops() const { return 6.0 * static_cast<double>(rows * out * in); }
};

struct Products {
  std::vector<Product> list;
  double seconds = 0;  // of all products of one step on this rank
  double flops = 0;    // of the same
  double rate() const { return flops / seconds; }
  Value to_value() const;
};

// Shapes from the model's parameters: matrices that are no table of an embedding, and the output layer, which FLOPs per
// token tell from the tables. Times them on the run's device as layers make them: operands in the dtype units compute
// with, weight gradients in the dtype of their slots. A few seconds.
Products time_products(const PreparedRun& run);

}  // namespace drivetrain
