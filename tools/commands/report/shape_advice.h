// Dimensions that waste a GPU's matrix units, and what others would gain: for `config check`; what is arithmetic in it
// costs time in `drivetrain plan`, too.
//
// Three things are looked at. Tensor cores read rows of 128 bytes: dimensions that are no multiple of 64 16-bit
// elements are padded or read piece by piece. A product is cut into tiles of 128 x 256: what hangs over the edge is
// computed for nothing. Tiles run in waves of one per multiprocessor: the last wave is mostly not full. Kernels of
// attention compute heads of 32, 64, 96, 128, ... elements: others are padded. The first is a rule of NVIDIA's guide to
// matrix products ("Matrix Multiplication Background"), whose cost no formula knows; the others are arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "internal.h"
#include "report/matrix_products.h"

namespace drivetrain {

struct ShapeFacts {
  int64_t rows = 0;  // of activations: micro_batch x positions of a rank
  int64_t micro_batch = 1;
  int64_t bytes = 2;  // of an element
  int64_t head_dim = 0;
  std::vector<MatrixShape> products;  // of a rank
};
DRIVETRAIN_INTERNAL ShapeFacts shape_facts(const PreparedRun& run);

// Lines, the most expensive thing first; none where nothing is to be gained.
DRIVETRAIN_INTERNAL std::vector<std::string> shape_advice(const ShapeFacts& facts);

// The size of heads as kernels of attention compute them.
DRIVETRAIN_INTERNAL int64_t padded_head(int64_t size);
// Of a product [m, n], whose tiles are 128 x 256.
DRIVETRAIN_INTERNAL int64_t tiles_of(int64_t m, int64_t n);
// The share of the work of a product [m, n] that counts, with tiles of 128 x 256: without what hangs over; and also
// without the empty places of the last wave on so many multiprocessors, where `together` such products run at once.
DRIVETRAIN_INTERNAL double tile_share(int64_t m, int64_t n);
DRIVETRAIN_INTERNAL double wave_share(int64_t m, int64_t n, int64_t multiprocessors, double together = 1);

}  // namespace drivetrain
