// Rows of a mixture's tokens, sorted by expert, and their weighted sums. On the CPU plain loops over tokens, each one's
// by one thread; elsewhere LibTorch's operators.
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

#include "choice_sums.h"
#include "token_rows.h"

namespace drivetrain {
namespace {

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

Tensors weighted_sum_backward_on_cpu(const at::Tensor& dout_TD, const at::Tensor& y_RD, const at::Tensor& weights_TK,
                                     const SortedRows& rows) {
  const int64_t T = rows.place_TK.size(0), K = rows.place_TK.size(1), D = y_RD.size(1);
  const at::Tensor dout = dout_TD.contiguous(), y = y_RD.contiguous(), dy = at::empty(y.sizes(), y.options()),
                   dw = at::empty_like(weights_TK);
  const int64_t *place = rows.place_TK.const_data_ptr<int64_t>(), *experts = rows.experts_TK.const_data_ptr<int64_t>();
  DRIVETRAIN_ROW_TYPES(y.scalar_type(), "weighted_sum", [&] {
    using Sum = SumOf<scalar_t>;
    const Sum* weights = weights_TK.const_data_ptr<Sum>();
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

namespace {

Tensors weighted_sum_backward_by_operators(const at::Tensor& dout, const at::Tensor& y, const at::Tensor& weights_TK,
                                           const SortedRows& rows) {
  const at::Tensor d = dout.to(weights_TK.scalar_type()), none = rows.experts_TK.lt(0);
  const at::Tensor w = weights_TK.masked_fill(none, 0);
  at::Tensor dy = at::zeros(y.sizes(), y.options()), dw = at::zeros(w.sizes(), w.options());
  for (int64_t k = 0; k < w.size(1); ++k) {
    const at::Tensor place = rows.place_TK.select(1, k);
    dw.select(1, k).copy_(at::index_select(y, 0, place).to(d.scalar_type()).mul_(d).sum(1));
    dy.index_copy_(0, place, d.mul(w.select(1, k).unsqueeze(1)).to(y.scalar_type()));
  }
  return {dy, dw.masked_fill_(none, 0)};
}

SortedRows sort_on_cpu(const at::Tensor& experts_TK, int64_t experts) {
  const at::Tensor ids = experts_TK.contiguous();
  const int64_t count = ids.numel();
  SortedRows rows = {at::empty({count}, ids.options()), at::empty_like(ids), at::zeros({experts}, ids.options()), ids};
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
  rows.experts_TK = experts_TK.contiguous();
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

// Backward does not need it.
static SortedRows without_order(SortedRows rows) {
  rows.order_R = at::Tensor();
  return rows;
}

at::Tensor rows_of_tokens(const at::Tensor& x_TD, const SortedRows& rows) {
  const int64_t K = rows.place_TK.size(1);
  return differentiable(
      {x_TD}, [&](const Tensors& in) { return Tensors{at::index_select(in[0], 0, rows.order_R.div(K, "floor"))}; },
      [rows = without_order(rows)](const Tensors& dy) { return Tensors{sum_of_choices(dy[0], {}, rows)}; })[0];
}

at::Tensor sum_over_choices(const at::Tensor& y_RD, const SortedRows& rows) {
  const at::NoGradGuard no_grad;
  return sum_of_choices(y_RD, {}, rows);
}

at::Tensor weighted_sum(const at::Tensor& y_RD, const at::Tensor& weights_TK, const SortedRows& rows) {
  const at::Tensor weights = weights_TK.detach().to(sum_type(y_RD)).contiguous();
  return differentiable(
      {y_RD, weights_TK}, [&](const Tensors& in) { return Tensors{sum_of_choices(in[0], weights, rows)}; },
      [y = y_RD.detach(), type = weights_TK.scalar_type(), weights, rows = without_order(rows)](const Tensors& dy) {
        Tensors found = y.is_cpu() ? weighted_sum_backward_on_cpu(dy[0], y, weights, rows)
                                   : weighted_sum_backward_by_operators(dy[0], y, weights, rows);
        found[1] = found[1].to(type);
        return found;
      })[0];
}

at::Tensor counts_of_parts(const SortedRows& rows, const std::vector<int64_t>& tokens) {
  const int64_t K = rows.place_TK.size(1), parts = static_cast<int64_t>(tokens.size());
  at::Tensor counts = at::zeros({rows.counts_E.size(0), parts}, rows.counts_E.options());
  if (const int64_t all = std::accumulate(tokens.begin(), tokens.end(), int64_t{0}); all != rows.place_TK.size(0))
    throw Error(ErrorCode::plugin, "experts: ranks are said to have sent " + std::to_string(all) + " tokens of " +
                                       std::to_string(rows.place_TK.size(0)));
  const int64_t* expert = rows.experts_TK.const_data_ptr<int64_t>();
  int64_t* const count = counts.mutable_data_ptr<int64_t>();
  for (int64_t part = 0; part < parts; ++part)
    for (int64_t c = 0; c < tokens[size_t(part)] * K; ++c, ++expert)
      if (*expert >= 0) ++count[*expert * parts + part];
  return counts;
}

}  // namespace drivetrain
