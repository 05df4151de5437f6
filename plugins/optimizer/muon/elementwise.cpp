#include "elementwise.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/where.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <vector>

#include <drivetrain/error.h>

#include "kernels/common/narrow.h"

namespace drivetrain::muon {
namespace {

using kernels::Dtype;

constexpr int64_t kGrain = 32768;
constexpr int64_t kNormBlock = 4096, kLanes = 16;  // squares are added in blocks, in each by lanes

// Calls f with a null pointer of the element type.
template <class F>
void by_type(at::ScalarType type, const F& f) {
  switch (type) {
    case at::kFloat:
      return f(static_cast<float*>(nullptr));
    case at::kBFloat16:
      return f(static_cast<c10::BFloat16*>(nullptr));
    case at::kHalf:
      return f(static_cast<c10::Half*>(nullptr));
    default:
      throw fail(ErrorCode::internal, "optimizer/muon computes in no ", at::toString(type));
  }
}

// Calls f(row, first column, behind the last one) for pieces of a matrix.
template <class F>
void over_rows(int64_t rows, int64_t columns, const F& f) {
  if (rows == 0 || columns == 0) return;
  if (rows == 1)  // one long row, such as a matrix that is contiguous
    return at::parallel_for(0, columns, kGrain, [&](int64_t begin, int64_t end) { f(0, begin, end); });
  at::parallel_for(0, rows, std::max<int64_t>(1, kGrain / columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row, 0, columns);
  });
}

double read(const at::Tensor& scalar) { return *scalar.const_data_ptr<double>(); }
bool skips(const StepScalars& step) { return *step.skip.const_data_ptr<bool>(); }

Dtype dtype_of(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return Dtype::f32;
    case at::kBFloat16:
      return Dtype::bf16;
    case at::kHalf:
      return Dtype::f16;
    default:
      throw fail(ErrorCode::internal, "optimizer/muon computes in no ", at::toString(x.scalar_type()));
  }
}

// Row r of a matrix with dense rows.
const void* row_of(const at::Tensor& x, int64_t row) {
  return static_cast<const char*>(x.const_data_ptr()) + row * x.stride(0) * x.element_size();
}
void* row_to_write(const at::Tensor& x, int64_t row) {
  return static_cast<char*>(x.mutable_data_ptr()) + row * x.stride(0) * x.element_size();
}

struct Momentum {
  float kept, rest, grad_scale;
  bool nesterov;
};

// to: null, or what is written of the direction.
DRIVETRAIN_VECTOR_CLONES void take_gradients(float* __restrict m, const float* __restrict g, void* __restrict to,
                                             Dtype dtype, const Momentum& by, int64_t n) {
  if (!to) {
    for (int64_t i = 0; i < n; ++i) m[i] = by.kept * m[i] + by.rest * (g[i] * by.grad_scale);
    return;
  }
  kernels::with_elements(
      dtype, [&]<class T>(T) __attribute__((always_inline)) {
        T* const out = static_cast<T*>(to);
        if (by.nesterov)
          for (int64_t i = 0; i < n; ++i) {
            const float grad = by.rest * (g[i] * by.grad_scale);
            m[i] = by.kept * m[i] + grad;
            out[i] = kernels::narrowed<T>(by.kept * m[i] + grad);
          }
        else
          for (int64_t i = 0; i < n; ++i) {
            m[i] = by.kept * m[i] + by.rest * (g[i] * by.grad_scale);
            out[i] = kernels::narrowed<T>(m[i]);
          }
      });
}

DRIVETRAIN_VECTOR_CLONES void take_steps(float* __restrict p, const void* __restrict direction, Dtype dtype,
                                         float shrink, float size, int64_t n) {
  kernels::with_elements(
      dtype, [&]<class T>(T) __attribute__((always_inline)) {
        const T* const d = static_cast<const T*>(direction);
        for (int64_t i = 0; i < n; ++i) p[i] = p[i] * shrink - size * kernels::widened(d[i]);
      });
}

DRIVETRAIN_VECTOR_CLONES double sum_of_squares(const void* x, Dtype dtype, int64_t begin, int64_t end) {
  double sum = 0;
  kernels::with_elements(
      dtype, [&]<class T>(T) __attribute__((always_inline)) {
        const T* const from = static_cast<const T*>(x);
        double lanes[kLanes] = {};
        int64_t i = begin;
        for (; i + kLanes <= end; i += kLanes)
          for (int64_t lane = 0; lane < kLanes; ++lane) {
            const auto v = static_cast<double>(kernels::widened(from[i + lane]));
            lanes[lane] += v * v;
          }
        for (; i < end; ++i) sum += static_cast<double>(kernels::widened(from[i])) * kernels::widened(from[i]);
        for (const double lane : lanes) sum += lane;
      });
  return sum;
}

at::Tensor as_float(const at::Tensor& x) { return x.to(at::kFloat); }
at::Tensor rest_of(const at::Tensor& part) { return part.neg().add_(1); }

}  // namespace

StepScalars::StepScalars(const UpdateArgs& args, int group) {
  const at::Tensor row = args.hyper.select(0, group);
  lr = row.select(0, 0), weight_decay = row.select(0, 1), momentum = row.select(0, 2);
  grad_scale = args.grad_scale, skip = args.skip;
}

void take_gradient(const at::Tensor& momentum, const at::Tensor& grad, const StepScalars& step) {
  take_gradient_into({}, momentum, grad, false, step);
}

void take_gradient_into(const at::Tensor& to, const at::Tensor& momentum, const at::Tensor& grad, bool nesterov,
                        const StepScalars& step) {
  const at::Tensor g = as_float(grad);
  if (!momentum.is_cpu()) {
    const at::Tensor scaled = g.mul(step.grad_scale).mul_(rest_of(step.momentum));
    momentum.copy_(at::where(step.skip, momentum, momentum.mul(step.momentum).add_(scaled)));
    if (to.defined()) to.copy_(nesterov ? momentum.mul(step.momentum).add_(scaled) : momentum);
    return;
  }
  if (skips(step)) {
    if (to.defined()) to.zero_();  // nobody takes the result, and what is computed of it is no NaN
    return;
  }
  const Momentum by = {static_cast<float>(read(step.momentum)), static_cast<float>(1 - read(step.momentum)),
                       static_cast<float>(read(step.grad_scale)), nesterov};
  const at::Tensor host = !to.defined() || to.is_cpu() ? to : at::empty_like(to, to.options().device(at::kCPU));
  const Dtype dtype = host.defined() ? dtype_of(host) : Dtype::f32;
  over_rows(momentum.size(0), momentum.size(1), [&](int64_t row, int64_t begin, int64_t end) {
    float* const m = static_cast<float*>(row_to_write(momentum, row)) + begin;
    const float* const from = static_cast<const float*>(row_of(g, row)) + begin;
    void* const out = host.defined()
                          ? static_cast<char*>(row_to_write(host, row)) + begin * kernels::bytes_of_element(dtype)
                          : nullptr;
    take_gradients(m, from, out, dtype, by, end - begin);
  });
  if (host.defined() && !host.is_same(to)) to.copy_(host);
}

void take_step(const at::Tensor& value, const at::Tensor& direction, double scale, const StepScalars& step) {
  if (!value.is_cpu()) {
    const at::Tensor moved =
        value.mul(rest_of(step.lr.mul(step.weight_decay))).sub_(as_float(direction).mul(step.lr.mul(scale)));
    value.copy_(at::where(step.skip, value, moved));
    return;
  }
  if (skips(step)) return;
  const at::Tensor host = direction.is_cpu() ? direction : direction.to(at::kCPU);
  const auto shrink = static_cast<float>(1 - read(step.lr) * read(step.weight_decay));
  const auto size = static_cast<float>(read(step.lr) * scale);
  const Dtype dtype = dtype_of(host);
  over_rows(value.size(0), value.size(1), [&](int64_t row, int64_t begin, int64_t end) {
    const char* const d = static_cast<const char*>(row_of(host, row)) + begin * kernels::bytes_of_element(dtype);
    take_steps(static_cast<float*>(row_to_write(value, row)) + begin, d, dtype, shrink, size, end - begin);
  });
}

at::Tensor weighted_sum(double a, const at::Tensor& x, double b, const at::Tensor& y, bool rounds) {
  if (!x.is_cpu()) return as_float(x).mul(a).add_(as_float(y).mul(b)).to(x.scalar_type());
  const at::Tensor sum = at::empty_like(x);
  const auto fa = static_cast<float>(a), fb = static_cast<float>(b);
  by_type(x.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    T* const to = sum.mutable_data_ptr<T>();
    const T* const px = x.const_data_ptr<T>();
    const auto loop = [&](const auto* py, auto* rounded) {
      using R = std::remove_pointer_t<decltype(rounded)>;
      at::parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          to[i] = static_cast<T>(static_cast<R>(fa * static_cast<float>(px[i]) + fb * static_cast<float>(py[i])));
      });
    };
    if (rounds)
      loop(y.const_data_ptr<float>(), static_cast<c10::BFloat16*>(nullptr));
    else if (y.scalar_type() == at::kFloat)
      loop(y.const_data_ptr<float>(), type);
    else
      loop(y.const_data_ptr<T>(), type);
  });
  return sum;
}

void mirror_upper_half(const at::Tensor& square) {
  constexpr int64_t kTile = 32;  // rows and columns that stay in the cache
  const int64_t n = square.size(0), tiles = (n + kTile - 1) / kTile;
  by_type(square.scalar_type(), [&](auto* type) {
    auto* const to = square.mutable_data_ptr<std::remove_pointer_t<decltype(type)>>();
    at::parallel_for(0, tiles, std::max<int64_t>(1, kGrain / (kTile * n)), [&](int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; ++tile)
        for (int64_t left = 0; left <= tile * kTile; left += kTile)
          for (int64_t row = tile * kTile; row < std::min(n, (tile + 1) * kTile); ++row)
            for (int64_t column = left; column < std::min(row, left + kTile); ++column)
              to[row * n + column] = to[column * n + row];
    });
  });
}

float inverse_norm(const at::Tensor& x, double epsilon) {
  const int64_t n = x.numel(), blocks = (n + kNormBlock - 1) / kNormBlock;
  std::vector<double> squares(blocks, 0);
  const void* const from = x.const_data_ptr();
  const Dtype dtype = dtype_of(x);
  at::parallel_for(0, blocks, kGrain / kNormBlock, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block)
      squares[block] = sum_of_squares(from, dtype, block * kNormBlock, std::min(n, (block + 1) * kNormBlock));
  });
  double sum = 0;
  for (const double square : squares) sum += square;
  const double norm = std::max(std::sqrt(sum), epsilon);
  return static_cast<float>(norm > 0 ? 1 / norm : 0);
}

at::Tensor divided_by_norm(const at::Tensor& x, double epsilon) {
  if (!x.is_cpu()) {
    const at::Tensor wide = as_float(x);
    return wide.div(at::linalg_vector_norm(wide).clamp_min(epsilon)).to(x.scalar_type());
  }
  const float factor = inverse_norm(x, epsilon);
  const at::Tensor out = at::empty_like(x);
  by_type(x.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* const from = x.const_data_ptr<T>();
    T* const to = out.mutable_data_ptr<T>();
    at::parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(static_cast<float>(from[i]) * factor);
    });
  });
  return out;
}

}  // namespace drivetrain::muon
