#include "newton_schulz.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include <drivetrain/toolkit/layers/linear.h>

#include "elementwise.h"
#include "tiled_iteration.h"

namespace drivetrain::muon {
namespace {

// Rows of a symmetric product that are computed at a time, from the diagonal on.
constexpr int64_t kStrip = 192;

// Products and sums of the iteration, in the type of its matrices. bfloat16 on a CPU is held in float32: the same
// roundings, and products of float32, which are tens of times as fast where the processor has none of bfloat16.
class Arithmetic {
 public:
  explicit Arithmetic(const at::Tensor& matrix) : rounds_(matrix.is_cpu() && matrix.scalar_type() == at::kBFloat16) {}

  at::Tensor held(const at::Tensor& x) const { return rounds_ ? x.to(at::kFloat) : x; }
  at::Tensor sum(double a, const at::Tensor& x, double b, const at::Tensor& y) const {
    return weighted_sum(a, x, b, y, rounds_);
  }
  at::Tensor rounded(const at::Tensor& x) const { return rounds_ ? x.copy_(x.to(at::kBFloat16)) : x; }
  at::Tensor product(const at::Tensor& x, const at::Tensor& y) const { return rounded(product_backward(x, y)); }
  at::Tensor gram(const at::Tensor& x) const {  // x x^T
    if (!x.is_cpu()) return drivetrain::product(x, x);
    return rounded(symmetric(x, x));
  }
  // x y of two polynomials of one symmetric matrix, for a sum.
  static at::Tensor commuting(const at::Tensor& x, const at::Tensor& y) {
    if (!x.is_cpu()) return product_backward(x, y);
    return symmetric(x, y);
  }

 private:
  // x y^T, which is symmetric but for rounding: half of it is computed and mirrored. Small matrices too: the iteration
  // on gram matrices needs results that are symmetric to the bit, since it multiplies by their transposes, and what
  // differs grows.
  static at::Tensor symmetric(const at::Tensor& x, const at::Tensor& y) {
    const int64_t n = x.size(0);
    at::Tensor whole;
    for (int64_t first = 0; first < n; first += kStrip) {
      const int64_t rows = std::min(kStrip, n - first);
      const at::Tensor strip = drivetrain::product(x.narrow(0, first, rows), y.narrow(0, first, n - first));
      if (!whole.defined()) whole = at::empty({n, n}, strip.options());
      whole.narrow(0, first, rows).narrow(1, first, n - first).copy_(strip);
    }
    mirror_upper_half(whole);
    return whole;
  }

  const bool rounds_;
};

at::Tensor standard(at::Tensor x, const NewtonSchulz& how, const Arithmetic& in) {
  const auto [a, b, c] = how.coefficients;
  for (int64_t i = 0; i < how.steps; ++i) {
    const at::Tensor gram = in.gram(x);
    const at::Tensor factor = in.sum(b, gram, c, in.commuting(gram, gram));
    x = in.sum(a, x, 1, product_backward(factor, x));
  }
  return x;
}

// All matrices but x are polynomials of `gram`, so that they commute.
at::Tensor by_gram(at::Tensor x, const NewtonSchulz& how, const Arithmetic& in) {
  const auto [a, b, c] = how.coefficients;
  at::Tensor gram = in.gram(x), factor;
  for (int64_t i = 0; i < how.steps; ++i) {
    if (i == kGramRestart) {
      x = in.product(factor, x);
      gram = in.gram(x);
      factor.reset();
    }
    const at::Tensor z = in.sum(b, gram, c, in.commuting(gram, gram));
    if (factor.defined()) {
      factor = in.sum(a, factor, 1, in.commuting(z, factor));
    } else {
      factor = z.clone();
      factor.diagonal().add_(a);
      in.rounded(factor);
    }
    if (i + 1 == how.steps || i + 1 == kGramRestart) continue;  // nobody reads the next gram matrix
    const at::Tensor half = in.sum(a, gram, 1, in.commuting(z, gram));
    gram = in.sum(a, half, 1, in.commuting(z, half));
  }
  return in.product(factor, x);
}

}  // namespace

at::Tensor orthogonalised(const at::Tensor& matrix, const NewtonSchulz& how) {
  if (multiplies_in_tiles(matrix.device(), matrix.scalar_type())) return orthogonalised_in_tiles(matrix, how);
  const bool tall = matrix.size(0) > matrix.size(1);
  const Arithmetic in(matrix);
  const at::Tensor wide = in.held(divided_by_norm(tall ? matrix.t().contiguous() : matrix, how.epsilon));
  const at::Tensor x = how.gram && wide.size(0) < wide.size(1) ? by_gram(wide, how, in) : standard(wide, how, in);
  return (tall ? x.t() : x).to(matrix.scalar_type()).contiguous();
}

NewtonSchulzWork newton_schulz_work(int64_t rows, int64_t columns, const NewtonSchulz& how) {
  const auto r = static_cast<double>(std::min(rows, columns)), c = static_cast<double>(std::max(rows, columns));
  const auto steps = static_cast<double>(how.steps);
  NewtonSchulzWork work;
  work.r = r, work.c = c;
  const double divided = rows > columns ? 7 : 3;  // the norm, the quotient; a tall matrix is turned, and turned back
  if (!how.gram || r == c) {
    work.grams = work.squares = work.moves = steps;
    work.passed = divided * r * c + steps * (3 * r * r + 3 * r * c);
    return work;
  }
  const double starts = how.steps > kGramRestart ? 2 : 1;
  const double factors = steps - starts, powers = steps - starts;  // beside the first factors; powers that are read
  work.grams = work.moves = starts;
  work.squares = steps + factors + 2 * powers;
  work.passed = divided * r * c + r * r * (3 * steps + 2 * starts + 3 * factors + 6 * powers);
  return work;
}

double newton_schulz_flops(int64_t rows, int64_t columns, const NewtonSchulz& how) {
  const NewtonSchulzWork work = newton_schulz_work(rows, columns, how);
  return work.r * work.r * ((work.grams + 2 * work.moves) * work.c + work.squares * work.r);
}

// Beside the matrix, at the end of a step: X and its successor with the product that both need, and two polynomials; or
// all polynomials of the gram form.
double newton_schulz_bytes(int64_t rows, int64_t columns, const NewtonSchulz& how, const at::Device& device,
                           at::ScalarType type) {
  const auto r = static_cast<double>(std::min(rows, columns)), n = static_cast<double>(rows * columns);
  if (multiplies_in_tiles(device, type)) return tiled_iteration_bytes(rows, columns, how);
  const double element = device.is_cpu() ? 4 : static_cast<double>(c10::elementSize(type));
  const bool gram = how.gram && rows != columns;
  return element * (gram ? std::max(n + 6 * r * r, 2 * n + 3 * r * r) : 3 * n + 2 * r * r);
}

}  // namespace drivetrain::muon
