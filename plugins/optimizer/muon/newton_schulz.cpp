#include "newton_schulz.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/layers/short_product.h>

#include "elementwise.h"

namespace drivetrain::muon {
namespace {

// The gram form computes X anew from its product before this step, since errors in the small matrix grow.
constexpr int64_t kRestart = 2;

at::Tensor transposed_product(const at::Tensor& x, const at::Tensor& y) { return product(x, y); }  // x y^T
at::Tensor plain_product(const at::Tensor& x, const at::Tensor& y) { return product_backward(x, y); }

// x y for a sum that is to be rounded once: where the processor multiplies 16 bits, as its float32 sums.
at::Tensor product_for_sum(const at::Tensor& x, const at::Tensor& y) {
  if (x.is_cpu() && x.scalar_type() == at::kBFloat16) {
    at::Tensor sums = at::empty({x.size(0), y.size(1)}, x.options().dtype(at::kFloat));
    if (add_short_product(sums, false, x, y)) return sums;
  }
  return product_backward(x, y);
}

at::Tensor standard(at::Tensor x, const NewtonSchulz& how) {
  const auto [a, b, c] = how.coefficients;
  for (int64_t i = 0; i < how.steps; ++i) {
    const at::Tensor gram = transposed_product(x, x);
    const at::Tensor factor = weighted_sum(b, gram, c, product_for_sum(gram, gram));
    x = weighted_sum(a, x, 1, product_for_sum(factor, x));
  }
  return x;
}

// All matrices but x are polynomials of `gram`, so that they commute.
at::Tensor by_gram(at::Tensor x, const NewtonSchulz& how) {
  const auto [a, b, c] = how.coefficients;
  at::Tensor gram = transposed_product(x, x), factor;
  for (int64_t i = 0; i < how.steps; ++i) {
    if (i == kRestart) {
      x = plain_product(factor, x);
      gram = transposed_product(x, x);
      factor.reset();
    }
    const at::Tensor z = weighted_sum(b, gram, c, product_for_sum(gram, gram));
    if (factor.defined()) {
      factor = weighted_sum(a, factor, 1, product_for_sum(z, factor));
    } else {
      factor = z.clone();
      factor.diagonal().add_(a);
    }
    if (i + 1 == how.steps || i + 1 == kRestart) continue;  // nobody reads the next gram matrix
    const at::Tensor half = weighted_sum(a, gram, 1, product_for_sum(z, gram));
    gram = weighted_sum(a, half, 1, product_for_sum(z, half));
  }
  return factor.defined() ? plain_product(factor, x) : x;
}

}  // namespace

at::Tensor orthogonalised(const at::Tensor& matrix, const NewtonSchulz& how) {
  const bool tall = matrix.size(0) > matrix.size(1);
  const at::Tensor wide = divided_by_norm(tall ? matrix.t().contiguous() : matrix, how.epsilon);
  const at::Tensor x = how.gram && wide.size(0) < wide.size(1) ? by_gram(wide, how) : standard(wide, how);
  return tall ? x.t().contiguous() : x;
}

double newton_schulz_flops(int64_t rows, int64_t columns, const NewtonSchulz& how) {
  const auto r = static_cast<double>(std::min(rows, columns)), c = static_cast<double>(std::max(rows, columns));
  const auto steps = static_cast<double>(how.steps);
  if (!how.gram || r == c) return steps * (4 * r * r * c + 2 * r * r * r);
  return 8 * r * r * c + steps * 8 * r * r * r;
}

}  // namespace drivetrain::muon
