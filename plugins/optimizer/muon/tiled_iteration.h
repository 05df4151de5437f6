// The iteration of newton_schulz.h on bfloat16 matrices that lie in memory as tiles (kernels/product/tiled.h): products
// pack what stands on the right only, sums are added up with their other summands before they are rounded, and of
// symmetric results half is computed.
#pragma once

#include <ATen/core/Tensor.h>

#include "newton_schulz.h"

namespace drivetrain::muon {

// Whether this processor multiplies matrices of this type so.
bool multiplies_in_tiles(const at::Device& device, at::ScalarType type);

// `orthogonalised`, of a matrix on a device and of a type for which multiplies_in_tiles holds. May be called on several
// threads at a time.
at::Tensor orthogonalised_in_tiles(const at::Tensor& matrix, const NewtonSchulz& how);

// Bytes that it takes beside the matrix: its tiles and the result.
double tiled_iteration_bytes(int64_t rows, int64_t columns, const NewtonSchulz& how);

}  // namespace drivetrain::muon
