// Sums over the choices of a token, in the order that mixture.h promises.
#pragma once

#include <ATen/core/Tensor.h>

#include <type_traits>

#include <drivetrain/toolkit/layers/mixture.h>

namespace drivetrain {

template <typename T>
using SumOf = std::conditional_t<std::is_same_v<T, double>, double, float>;
inline at::ScalarType sum_type(const at::Tensor& t) {
  return t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// Types of rows, inside of functions of a scalar_t.
#define DRIVETRAIN_ROW_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, TYPE, NAME, __VA_ARGS__)

// Tokens that a thread takes at least.
int64_t least_tokens(int64_t choices, int64_t columns);

// Row t: the sum over k of weights[t, k] y[place[t, k]], or, without weights, of the rows. Choices of nobody add
// nothing and need no row. No autograd.
at::Tensor sum_of_choices(const at::Tensor& y_RD, const at::Tensor& weights_TK, const SortedRows& rows);

}  // namespace drivetrain
