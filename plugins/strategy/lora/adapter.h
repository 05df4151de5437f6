// One adapter: A [r, in] and B [rows, r] beside some rows of a linear layer's weight.
#pragma once

#include <vector>

#include <drivetrain/layers.h>

#include "targets.h"

namespace drivetrain::lora {

struct Adapter {
  Wish wish;
  ParamPtr a, b;
  int64_t first = 0, rows = 0;         // of this rank's outputs
  std::vector<Layout::Range> columns;  // of this rank's inputs among all
};

// The adapter of a module of the layer, cut as the layer's weight is: where its rows are cut, B is, where its columns,
// A; along an axis that cuts one of them the other's gradient is a partial sum. Error(config) if the module is a part
// of one of the layer's blocks, which ranks divide otherwise.
Adapter make_adapter(const LinearSpec& spec, const Wish& wish, bool gaussian, const Mesh& mesh);

// Which numbers dropout draws in the visit at hand. Set by the strategy before a unit's forward and backward.
struct DropoutKeys {
  RandomKey key;                          // its rows are not used
  std::vector<RowRange> inside, between;  // positions of activations inside of layers and between them
};

// What dropout multiplies the input x [B, S, columns] of `adapter` by: of the numbers that one process draws those of
// this rank's positions and columns.
at::Tensor dropout_factors(const at::Tensor& x, double p, const DropoutKeys& keys, const Adapter& adapter);

}  // namespace drivetrain::lora
