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

namespace drivetrain::muon {
namespace {

constexpr int64_t kGrain = 32768;
constexpr int64_t kNormBlock = 4096, kLanes = 8;  // squares are added in blocks, in each by lanes

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

at::Tensor as_float(const at::Tensor& x) { return x.to(at::kFloat); }
at::Tensor rest_of(const at::Tensor& part) { return part.neg().add_(1); }

}  // namespace

StepScalars::StepScalars(const UpdateArgs& args, int group) {
  const at::Tensor row = args.hyper.select(0, group);
  lr = row.select(0, 0), weight_decay = row.select(0, 1), momentum = row.select(0, 2);
  grad_scale = args.grad_scale, skip = args.skip;
}

void add_gradient(const at::Tensor& momentum, const at::Tensor& grad, const StepScalars& step) {
  const at::Tensor g = as_float(grad);
  if (!momentum.is_cpu()) {
    const at::Tensor sum = momentum.mul(step.momentum).add_(g.mul(step.grad_scale).mul_(rest_of(step.momentum)));
    momentum.copy_(at::where(step.skip, momentum, sum));
    return;
  }
  if (skips(step)) return;
  const auto mu = static_cast<float>(read(step.momentum)), rest = static_cast<float>(1 - read(step.momentum));
  const auto scale = static_cast<float>(read(step.grad_scale));
  float* const m = momentum.mutable_data_ptr<float>();
  const float* const from = g.const_data_ptr<float>();
  at::parallel_for(0, momentum.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) m[i] = mu * m[i] + rest * (from[i] * scale);
  });
}

void write_direction(const at::Tensor& to, const at::Tensor& momentum, const at::Tensor& grad, bool nesterov,
                     const StepScalars& step) {
  if (!nesterov) {
    to.copy_(momentum);
    return;
  }
  const at::Tensor g = as_float(grad);
  if (!momentum.is_cpu()) {
    to.copy_(momentum.mul(step.momentum).add_(g.mul(step.grad_scale).mul_(rest_of(step.momentum))));
    return;
  }
  const auto mu = static_cast<float>(read(step.momentum)), rest = static_cast<float>(1 - read(step.momentum));
  const auto scale = static_cast<float>(read(step.grad_scale));
  const at::Tensor host = to.is_cpu() ? to : at::empty_like(to, to.options().device(at::kCPU));
  by_type(to.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    T* const out = host.mutable_data_ptr<T>();
    const float *const m = momentum.const_data_ptr<float>(), *const from = g.const_data_ptr<float>();
    over_rows(host.size(0), host.size(1), [&](int64_t row, int64_t begin, int64_t end) {
      T* const o = out + row * host.stride(0);
      const float *const mr = m + row * momentum.stride(0), *const gr = from + row * g.stride(0);
      for (int64_t i = begin; i < end; ++i) o[i] = static_cast<T>(mu * mr[i] + rest * (gr[i] * scale));
    });
  });
  if (!host.is_same(to)) to.copy_(host);
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
  by_type(host.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    float* const p = value.mutable_data_ptr<float>();
    const T* const d = host.const_data_ptr<T>();
    over_rows(value.size(0), value.size(1), [&](int64_t row, int64_t begin, int64_t end) {
      float* const pr = p + row * value.stride(0);
      const T* const dr = d + row * host.stride(0);
      for (int64_t i = begin; i < end; ++i) pr[i] = pr[i] * shrink - size * static_cast<float>(dr[i]);
    });
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

at::Tensor divided_by_norm(const at::Tensor& x, double epsilon) {
  if (!x.is_cpu()) {
    const at::Tensor wide = as_float(x);
    return wide.div(at::linalg_vector_norm(wide).clamp_min(epsilon)).to(x.scalar_type());
  }
  const at::Tensor out = at::empty_like(x);
  by_type(x.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* const from = x.const_data_ptr<T>();
    T* const to = out.mutable_data_ptr<T>();
    const int64_t n = x.numel(), blocks = (n + kNormBlock - 1) / kNormBlock;
    std::vector<double> squares(blocks, 0);
    at::parallel_for(0, blocks, kGrain / kNormBlock, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        double lanes[kLanes] = {};
        const int64_t last = std::min(n, (block + 1) * kNormBlock);
        for (int64_t i = block * kNormBlock; i < last; i += kLanes)
          for (int64_t lane = 0; lane < std::min(kLanes, last - i); ++lane) {
            const auto v = static_cast<double>(static_cast<float>(from[i + lane]));
            lanes[lane] += v * v;
          }
        for (const double lane : lanes) squares[block] += lane;
      }
    });
    double sum = 0;
    for (const double square : squares) sum += square;
    const double norm = std::max(std::sqrt(sum), epsilon);
    const auto factor = static_cast<float>(norm > 0 ? 1 / norm : 0);
    at::parallel_for(0, n, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(static_cast<float>(from[i]) * factor);
    });
  });
  return out;
}

}  // namespace drivetrain::muon
