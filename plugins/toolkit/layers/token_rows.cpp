// Rows of a mixture's tokens, sorted by expert, and their sums. On the CPU plain loops over tokens, each one's by one
// thread; elsewhere LibTorch's operators, in the same order of sums.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <numeric>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/layers/mixture.h>
#include <drivetrain/toolkit/units/differentiable.h>

#include "token_rows.h"

namespace drivetrain {
namespace {

template <typename T>
using SumOf = std::conditional_t<std::is_same_v<T, double>, double, float>;
at::ScalarType sum_type(const at::Tensor& t) { return t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

// Elements that a thread takes at least.
constexpr int64_t kLeastElements = int64_t{1} << 15;
int64_t least_tokens(int64_t K, int64_t D) {
  return std::max<int64_t>(kLeastElements / std::max<int64_t>(K * D, 1), 1);
}

#define DRIVETRAIN_ROW_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, TYPE, NAME, __VA_ARGS__)

// The choices of a token that are of an expert, by ascending expert: calls use(k) for each.
template <typename Use>
void by_ascending_expert(const int64_t* experts, std::vector<int64_t>& order, const Use& use) {
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return experts[a] < experts[b]; });
  for (const int64_t k : order)
    if (experts[k] >= 0) use(k);
}

struct WeightedChoices {
  at::Tensor weights_TK, experts_TK, place_TK;  // contiguous; the weights have the type of sums
};

at::Tensor weighted_sum_on_cpu(const at::Tensor& y_RD, const WeightedChoices& choices) {
  const int64_t T = choices.place_TK.size(0), K = choices.place_TK.size(1), D = y_RD.size(1);
  const at::Tensor y = y_RD.contiguous(), out = at::empty({T, D}, y.options());
  const int64_t *place = choices.place_TK.const_data_ptr<int64_t>(),
                *experts = choices.experts_TK.const_data_ptr<int64_t>();
  DRIVETRAIN_ROW_TYPES(y.scalar_type(), "weighted_sum", [&] {
    using Sum = SumOf<scalar_t>;
    const scalar_t* from = y.const_data_ptr<scalar_t>();
    const Sum* weights = choices.weights_TK.const_data_ptr<Sum>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, T, least_tokens(K, D), [&](int64_t begin, int64_t end) {
      std::vector<Sum> sum(static_cast<size_t>(D));
      std::vector<int64_t> order(static_cast<size_t>(K));
      for (int64_t t = begin; t < end; ++t) {
        std::fill(sum.begin(), sum.end(), Sum(0));
        by_ascending_expert(experts + t * K, order, [&](int64_t k) {
          const scalar_t* row = from + place[t * K + k] * D;
          const Sum weight = weights[t * K + k];
          for (int64_t d = 0; d < D; ++d) sum[size_t(d)] += weight * static_cast<Sum>(row[d]);
        });
        for (int64_t d = 0; d < D; ++d) to[t * D + d] = static_cast<scalar_t>(sum[size_t(d)]);
      }
    });
  });
  return out;
}

// dy_r = w dout_t and dw = dout_t . y_r for the row of each choice; zeros for choices of nobody.
template <typename scalar_t>
SumOf<scalar_t> choice_backward(const scalar_t* y, const scalar_t* dout, SumOf<scalar_t> weight, scalar_t* dy,
                                int64_t D) {
  using Sum = SumOf<scalar_t>;
  constexpr int64_t kLanes = 16;  // partial sums, so that they are computed side by side
  std::array<Sum, kLanes> dot = {};
  int64_t d = 0;
  for (; d + kLanes <= D; d += kLanes)
    for (int64_t i = 0; i < kLanes; ++i) {
      const Sum g = static_cast<Sum>(dout[d + i]);
      dot[size_t(i)] += g * static_cast<Sum>(y[d + i]);
      dy[d + i] = static_cast<scalar_t>(weight * g);
    }
  for (; d < D; ++d) {
    const Sum g = static_cast<Sum>(dout[d]);
    dot[0] += g * static_cast<Sum>(y[d]);
    dy[d] = static_cast<scalar_t>(weight * g);
  }
  return std::accumulate(dot.begin(), dot.end(), Sum(0));
}

template <typename scalar_t>
SumOf<scalar_t> weigh_row(scalar_t* a, scalar_t* g, SumOf<scalar_t> weight, int64_t F) {
  using Sum = SumOf<scalar_t>;
  constexpr int64_t kLanes = 16;  // as above
  std::array<Sum, kLanes> dot = {};
  const auto weigh = [&](int64_t f, int64_t lane) {
    const Sum of_a = static_cast<Sum>(a[f]), of_g = static_cast<Sum>(g[f]);
    dot[size_t(lane)] += of_a * of_g;
    a[f] = static_cast<scalar_t>(weight * of_a), g[f] = static_cast<scalar_t>(weight * of_g);
  };
  int64_t f = 0;
  for (; f + kLanes <= F; f += kLanes)
    for (int64_t i = 0; i < kLanes; ++i) weigh(f + i, i);
  for (; f < F; ++f) weigh(f, 0);
  return std::accumulate(dot.begin(), dot.end(), Sum(0));
}

Tensors weighted_sum_backward_on_cpu(const at::Tensor& dout_TD, const at::Tensor& y_RD,
                                     const WeightedChoices& choices) {
  const int64_t T = choices.place_TK.size(0), K = choices.place_TK.size(1), D = y_RD.size(1);
  const at::Tensor dout = dout_TD.contiguous(), y = y_RD.contiguous(), dy = at::empty(y.sizes(), y.options()),
                   dw = at::empty_like(choices.weights_TK);
  const int64_t *place = choices.place_TK.const_data_ptr<int64_t>(),
                *experts = choices.experts_TK.const_data_ptr<int64_t>();
  DRIVETRAIN_ROW_TYPES(y.scalar_type(), "weighted_sum", [&] {
    using Sum = SumOf<scalar_t>;
    const Sum* weights = choices.weights_TK.const_data_ptr<Sum>();
    const scalar_t *from = y.const_data_ptr<scalar_t>(), *d = dout.const_data_ptr<scalar_t>();
    scalar_t* to = dy.mutable_data_ptr<scalar_t>();
    Sum* to_weights = dw.mutable_data_ptr<Sum>();
    at::parallel_for(0, T, least_tokens(K, D), [&](int64_t begin, int64_t end) {
      for (int64_t c = begin * K; c < end * K; ++c) {
        const int64_t at_row = place[c] * D;
        to_weights[c] =
            experts[c] < 0 ? Sum(0) : choice_backward(from + at_row, d + c / K * D, weights[c], to + at_row, D);
      }
    });
  });
  const int64_t used = std::count_if(experts, experts + T * K, [](int64_t e) { return e >= 0; });
  dy.narrow(0, used, y.size(0) - used).zero_();
  return {dy, dw};
}

}  // namespace

at::Tensor sum_of_choices(const at::Tensor& dy_RD, const at::Tensor& place_TK) {
  const int64_t T = place_TK.size(0), K = place_TK.size(1), D = dy_RD.size(1);
  const at::Tensor dy = dy_RD.contiguous(), dx = at::empty({T, D}, dy.options());
  const int64_t* place = place_TK.const_data_ptr<int64_t>();
  DRIVETRAIN_ROW_TYPES(dy.scalar_type(), "rows_of_tokens", [&] {
    const scalar_t* from = dy.const_data_ptr<scalar_t>();
    scalar_t* to = dx.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, T, least_tokens(K, D), [&](int64_t begin, int64_t end) {
      std::vector<SumOf<scalar_t>> sum(static_cast<size_t>(D));
      for (int64_t t = begin; t < end; ++t) {
        std::fill(sum.begin(), sum.end(), SumOf<scalar_t>(0));
        for (int64_t k = 0; k < K; ++k) {
          if (place[t * K + k] >= dy.size(0)) continue;
          const scalar_t* row = from + place[t * K + k] * D;
          for (int64_t d = 0; d < D; ++d) sum[size_t(d)] += static_cast<SumOf<scalar_t>>(row[d]);
        }
        for (int64_t d = 0; d < D; ++d) to[t * D + d] = static_cast<scalar_t>(sum[size_t(d)]);
      }
    });
  });
  return dx;
}

at::Tensor weigh_rows(const at::Tensor& a_RF, const at::Tensor& g_RF, const at::Tensor& weights_TK,
                      const at::Tensor& place_TK) {
  const int64_t T = place_TK.size(0), K = place_TK.size(1), R = a_RF.size(0), F = a_RF.size(1);
  const at::Tensor w = weights_TK.to(sum_type(a_RF)).contiguous(), dw = at::empty_like(w);
  const int64_t* place = place_TK.const_data_ptr<int64_t>();
  DRIVETRAIN_ROW_TYPES(a_RF.scalar_type(), "weigh_rows", [&] {
    using Sum = SumOf<scalar_t>;
    const Sum* from = w.const_data_ptr<Sum>();
    Sum* to = dw.mutable_data_ptr<Sum>();
    scalar_t *a = a_RF.mutable_data_ptr<scalar_t>(), *g = g_RF.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, T, least_tokens(K, F), [&](int64_t begin, int64_t end) {
      for (int64_t c = begin * K; c < end * K; ++c)
        to[c] = place[c] < R ? weigh_row(a + place[c] * F, g + place[c] * F, from[c], F) : Sum(0);
    });
  });
  return dw;
}

#undef DRIVETRAIN_ROW_TYPES

namespace {

Tensors weighted_sum_backward_by_operators(const at::Tensor& dout, const at::Tensor& y,
                                           const WeightedChoices& choices) {
  const at::Tensor d = dout.to(choices.weights_TK.scalar_type()), none = choices.experts_TK.lt(0);
  const at::Tensor w = choices.weights_TK.masked_fill(none, 0);
  at::Tensor dy = at::zeros(y.sizes(), y.options()), dw = at::zeros(w.sizes(), w.options());
  for (int64_t k = 0; k < w.size(1); ++k) {
    const at::Tensor place = choices.place_TK.select(1, k);
    dw.select(1, k).copy_(at::index_select(y, 0, place).to(d.scalar_type()).mul_(d).sum(1));
    dy.index_copy_(0, place, d.mul(w.select(1, k).unsqueeze(1)).to(y.scalar_type()));
  }
  return {dy, dw.masked_fill_(none, 0)};
}

at::Tensor weighted_sum_by_operators(const at::Tensor& y, const WeightedChoices& choices) {
  const at::ScalarType type = choices.weights_TK.scalar_type();
  const at::Tensor by_expert = std::get<1>(at::sort(choices.experts_TK, true, 1, false));
  const at::Tensor place = choices.place_TK.gather(1, by_expert);
  const at::Tensor weights = choices.weights_TK.masked_fill(choices.experts_TK.lt(0), 0).gather(1, by_expert);
  at::Tensor sum = at::zeros({place.size(0), y.size(1)}, y.options().dtype(type));
  for (int64_t k = 0; k < place.size(1); ++k)
    sum.add_(at::index_select(y, 0, place.select(1, k)).to(type).mul_(weights.select(1, k).unsqueeze(1)));
  return sum.to(y.scalar_type());
}

SortedRows sort_on_cpu(const at::Tensor& experts_TK, int64_t experts) {
  const at::Tensor ids = experts_TK.contiguous();
  const int64_t count = ids.numel();
  SortedRows rows = {at::empty({count}, ids.options()), at::empty_like(ids), at::zeros({experts}, ids.options())};
  const int64_t* id = ids.const_data_ptr<int64_t>();
  int64_t *order = rows.order_R.mutable_data_ptr<int64_t>(), *place = rows.place_TK.mutable_data_ptr<int64_t>(),
          *counts = rows.counts_E.mutable_data_ptr<int64_t>();
  for (int64_t c = 0; c < count; ++c) {
    if (id[c] >= experts)
      throw Error(ErrorCode::plugin, "a router chose expert " + std::to_string(id[c]) + " of " +
                                         std::to_string(experts) + "; ids have to be less, or -1 for none");
    if (id[c] >= 0) ++counts[id[c]];
  }
  std::vector<int64_t> next(static_cast<size_t>(experts) + 1, 0);  // the next row of each expert, and of nobody
  std::partial_sum(counts, counts + experts, next.begin() + 1);
  for (int64_t c = 0; c < count; ++c) {
    place[c] = next[size_t(id[c] >= 0 ? id[c] : experts)]++;
    order[place[c]] = c;
  }
  return rows;
}

}  // namespace

SortedRows sort_by_expert(const at::Tensor& experts_TK, int64_t experts) {
  const at::NoGradGuard no_grad;
  if (experts_TK.is_cpu()) return sort_on_cpu(experts_TK, experts);
  const at::Tensor ids = experts_TK.reshape({-1});
  const at::Tensor named = at::where(ids.lt(0), at::ones_like(ids).mul_(experts), ids);  // nobody's come last
  SortedRows rows;
  rows.order_R = std::get<1>(at::sort(named, true, 0, false));
  rows.place_TK = at::empty_like(rows.order_R)
                      .scatter_(0, rows.order_R, at::arange(ids.numel(), ids.options()))
                      .view(experts_TK.sizes());
  rows.counts_E = at::zeros({experts + 1}, ids.options())
                      .scatter_add_(0, named, at::ones_like(named))
                      .narrow(0, 0, experts)
                      .contiguous();
  return rows;
}

SortedRows without_nobody(SortedRows rows, int64_t used) {
  rows.order_R = rows.order_R.narrow(0, 0, std::min(used + 1, rows.order_R.size(0)));
  rows.place_TK = rows.place_TK.clamp_max(used);
  return rows;
}

at::Tensor rows_of_tokens(const at::Tensor& x_TD, const SortedRows& rows) {
  const int64_t K = rows.place_TK.size(1);
  return differentiable(
      {x_TD}, [&](const Tensors& in) { return Tensors{at::index_select(in[0], 0, rows.order_R.div(K, "floor"))}; },
      [place = rows.place_TK, K](const Tensors& dy) {
        if (dy[0].is_cpu()) return Tensors{sum_of_choices(dy[0], place)};
        at::Tensor sum = at::zeros({place.size(0), dy[0].size(1)}, dy[0].options().dtype(sum_type(dy[0])));
        for (int64_t k = 0; k < K; ++k) sum.add_(at::index_select(dy[0], 0, place.select(1, k)));
        return Tensors{sum.to(dy[0].scalar_type())};
      })[0];
}

at::Tensor weighted_sum(const at::Tensor& y_RD, const at::Tensor& weights_TK, const at::Tensor& experts_TK,
                        const SortedRows& rows) {
  const WeightedChoices choices = {weights_TK.detach().to(sum_type(y_RD)).contiguous(), experts_TK.contiguous(),
                                   rows.place_TK};
  return differentiable(
      {y_RD, weights_TK},
      [&](const Tensors& in) {
        return Tensors{in[0].is_cpu() ? weighted_sum_on_cpu(in[0], choices)
                                      : weighted_sum_by_operators(in[0], choices)};
      },
      [y = y_RD.detach(), type = weights_TK.scalar_type(), choices](const Tensors& dy) {
        Tensors found = y.is_cpu() ? weighted_sum_backward_on_cpu(dy[0], y, choices)
                                   : weighted_sum_backward_by_operators(dy[0], y, choices);
        found[1] = found[1].to(type);
        return found;
      })[0];
}

}  // namespace drivetrain
