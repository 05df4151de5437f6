#include "tiled_iteration.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "elementwise.h"
#include "kernels/product/tiled.h"

namespace drivetrain::muon {
namespace {

using kernels::TiledProduct;

// Pieces of k that are multiplied at a time: then what all of the columns read stays in the second cache.
constexpr int64_t kChunk = 24;

// Of X and its polynomials.
int64_t tile_bytes(int64_t r, int64_t c, bool gram) {
  return kernels::tiled_bytes(r, c) + (gram ? 5 : 2) * kernels::tiled_bytes(r, r);
}

// Of the sums of products that are taken in chunks; 0: none is.
int64_t sum_bytes(int64_t r, int64_t c) {
  TiledProduct square;
  square.m = square.n = r;
  return kernels::tiled_pieces(c) > kChunk ? kernels::tiled_sum_bytes(square) : 0;
}

// X [r, c] with r <= c, and the polynomials [r, r] of X X^T, all of which are symmetric.
class Iteration {
 public:
  Iteration(const at::Tensor& matrix, const NewtonSchulz& how)
      : how_(how),
        tall_(matrix.size(0) > matrix.size(1)),
        r_(std::min(matrix.size(0), matrix.size(1))),
        c_(std::max(matrix.size(0), matrix.size(1))),
        gram_(how.gram && r_ < c_),
        result_(at::empty_like(matrix)) {
    const int64_t bytes = kernels::tiled_bytes(r_, r_), sums = sum_bytes(r_, c_);
    memory_ = at::empty({tile_bytes(r_, c_, gram_) + sums}, at::TensorOptions(at::kByte));
    char* at = static_cast<char*>(memory_.mutable_data_ptr());
    const auto take = [&](int64_t size) { return std::exchange(at, at + size); };
    x_ = take(kernels::tiled_bytes(r_, c_));
    power_ = take(bytes), step_ = take(bytes);
    if (gram_) half_ = take(bytes), factor_ = take(bytes), spare_ = take(bytes);
    if (sums > 0) sums_ = at;
    pack(matrix);
  }

  at::Tensor run() {
    gram_ ? by_gram() : standard();
    return result_;
  }

 private:
  void pack(const at::Tensor& matrix) {
    kernels::TiledPack op;
    op.x = matrix.const_data_ptr(), op.stride = matrix.size(1), op.transposed = tall_;
    op.factor = inverse_norm(matrix, how_.epsilon);
    op.rows = r_, op.columns = c_, op.tiles = x_;
    at::parallel_for(0, kernels::tiled_panels(op), 1,
                     [&](int64_t begin, int64_t end) { kernels::tiled_pack_cpu(op, begin, end); });
  }

  void multiply(TiledProduct op) const {
    op.unit = kernels::product_unit();
    const int64_t pieces = kernels::tiled_pieces(op.k);
    const bool at_once = pieces <= kChunk || !op.symmetric;
    if (!at_once) op.sums = sums_;
    for (; op.k_end < pieces; op.k_begin = op.k_end) {
      op.k_end = at_once ? pieces : std::min(op.k_begin + kChunk, pieces);
      at::parallel_for(0, kernels::tiled_tasks(op), 1, [&](int64_t begin, int64_t end) {
        const at::Tensor scratch = at::empty({kernels::tiled_scratch_bytes(op)}, at::TensorOptions(at::kByte));
        kernels::tiled_product_cpu(op, scratch.mutable_data_ptr(), begin, end);
      });
    }
  }

  // to := of_summand summand + of_product a b
  void symmetric(const void* a, const void* b, double of_product, const void* summand, double of_summand,
                 void* to) const {
    TiledProduct op;
    op.a = a, op.b = b, op.m = op.n = op.k = r_, op.symmetric = true;
    op.of_product = static_cast<float>(of_product);
    op.summand = summand, op.of_summand = static_cast<float>(of_summand), op.tiles = to;
    multiply(op);
  }
  // power := X X^T
  void take_gram() const {
    TiledProduct op;
    op.a = op.b = x_, op.b_transposed = true, op.m = op.n = r_, op.k = c_, op.symmetric = true, op.tiles = power_;
    multiply(op);
  }
  // step := b power + c power^2
  void take_step() const { symmetric(power_, power_, how_.coefficients[2], power_, how_.coefficients[1], step_); }
  // X := of_x X + left X; in the end that is the result.
  void move_x(const void* left, double of_x, bool last) const {
    TiledProduct op;
    op.a = left, op.b = x_, op.m = r_, op.n = c_, op.k = r_;
    if (of_x != 0) op.summand = x_, op.of_summand = static_cast<float>(of_x);
    if (last)
      op.c = result_.mutable_data_ptr(), op.c_stride = result_.size(1), op.c_transposed = tall_;
    else
      op.tiles = x_;
    multiply(op);
  }

  void standard() const {
    for (int64_t i = 0; i < how_.steps; ++i) {
      take_gram();
      take_step();
      move_x(step_, how_.coefficients[0], i + 1 == how_.steps);
    }
  }

  void by_gram() {
    const double a = how_.coefficients[0];
    take_gram();
    for (int64_t i = 0; i < how_.steps; ++i) {
      if (i == kGramRestart) {
        move_x(factor_, 0, false);
        take_gram();
      }
      take_step();
      if (i == 0 || i == kGramRestart) {
        std::memcpy(factor_, step_, kernels::tiled_bytes(r_, r_));
        kernels::tiled_add_to_diagonal(factor_, r_, static_cast<float>(a));
      } else {
        symmetric(step_, factor_, 1, factor_, a, spare_);  // not in place: the factor is read as a whole
        std::swap(factor_, spare_);
      }
      if (i + 1 == how_.steps || i + 1 == kGramRestart) continue;  // nobody reads the next power
      symmetric(step_, power_, 1, power_, a, half_);
      symmetric(step_, half_, 1, half_, a, power_);
    }
    move_x(factor_, 0, true);
  }

  const NewtonSchulz& how_;
  const bool tall_;
  const int64_t r_, c_;
  const bool gram_;
  const at::Tensor result_;
  at::Tensor memory_;
  void *x_ = nullptr, *power_ = nullptr, *step_ = nullptr, *half_ = nullptr, *factor_ = nullptr, *spare_ = nullptr,
       *sums_ = nullptr;
};

}  // namespace

bool multiplies_in_tiles(const at::Device& device, at::ScalarType type) {
  return device.is_cpu() && type == at::kBFloat16 && kernels::product_unit() != kernels::ProductUnit::none;
}

double tiled_iteration_bytes(int64_t rows, int64_t columns, const NewtonSchulz& how) {
  const int64_t r = std::min(rows, columns), c = std::max(rows, columns);
  return static_cast<double>(2 * rows * columns + tile_bytes(r, c, how.gram && r < c) + sum_bytes(r, c));
}

at::Tensor orthogonalised_in_tiles(const at::Tensor& matrix, const NewtonSchulz& how) {
  return Iteration(matrix, how).run();
}

}  // namespace drivetrain::muon
