// The orthogonal matrix that is nearest to a matrix, approximately: u v^T of its singular value decomposition, with
// singular values of about 0.7 to 1.2 in place of 1. Products in 16 bits are summed in float32.
//
// Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; the gram form: Dao 2026,
// "Gram Newton-Schulz" (tridao.me/blog/2026/gram-newton-schulz).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>

namespace drivetrain::muon {

struct NewtonSchulz {
  std::array<double, 3> coefficients = {3.4445, -4.7750, 2.0315};
  int64_t steps = 5;
  double epsilon = 1e-7;  // the norm that is divided by is at least this
  bool gram = false;      // iterate on X X^T, where that is the smaller matrix
};

// The gram form computes X anew from its product before this step, since errors in the small matrix grow.
inline constexpr int64_t kGramRestart = 2;

// `matrix` [n, m], contiguous, in the type in which to compute; [n, m] of the same type. Depends on the elements alone:
// not on threads, nor on what else is computed. A matrix of zeros gives zeros.
at::Tensor orthogonalised(const at::Tensor& matrix, const NewtonSchulz& how);

// What it computes of an [r, c] matrix, r <= c: products X X^T, products [r, r] of two polynomials of that, and
// products [r, c] of such a polynomial with X. The first two are symmetric.
struct NewtonSchulzWork {
  double r = 0, c = 0;
  double grams = 0, squares = 0, moves = 0;
  double passed = 0;  // elements that sums, norm and quotient read and write, where products do not take them along
};
NewtonSchulzWork newton_schulz_work(int64_t rows, int64_t columns, const NewtonSchulz& how);

// Floating-point operations of it, of symmetric products half, as on a CPU. Owners are chosen by it on every device.
double newton_schulz_flops(int64_t rows, int64_t columns, const NewtonSchulz& how);

// Bytes that it takes beside the matrix, at its fullest moment.
double newton_schulz_bytes(int64_t rows, int64_t columns, const NewtonSchulz& how, const at::Device& device,
                           at::ScalarType type);

}  // namespace drivetrain::muon
