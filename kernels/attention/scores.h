// Softmax of a block of scores between its two products, and its gradient, for float32 and float64: cap, mask,
// exponentials and sums in one pass over each row.
//
// Source: Dao et al. 2022, "FlashAttention", appendix B.2; the cap is Gemma 2's: a score s becomes c tanh(s / c),
// before the mask, with the derivative 1 - tanh(s / c)^2. Every sum has one order that depends on its length alone.
#pragma once

#include "kernels/common/kernel.h"

namespace drivetrain::kernels {

// T: float or double. Row r sees its columns from begin + r to end + r - 1, of those that there are.
template <class T>
struct ScoreRows {
  T* scores = nullptr;  // [rows, columns], scaled; become probabilities, 0 where hidden
  int64_t rows = 0, columns = 0, begin = 0, end = 0;
  double softcap = 0;  // 0: none
};

template <class T>
struct SoftmaxRows : ScoreRows<T> {
  T* lse = nullptr;   // [rows], natural logarithm; -infinity for a row that sees nothing
  T* sums = nullptr;  // [rows], of the row's probabilities, which are relative to its largest one; or 0
};
DRIVETRAIN_KERNEL void softmax_rows_cpu(const SoftmaxRows<float>&);
DRIVETRAIN_KERNEL void softmax_rows_cpu(const SoftmaxRows<double>&);

template <class T>
struct SoftmaxGradRows : ScoreRows<T> {
  T* gradients = nullptr;    // [rows, columns], of the probabilities; become those of the scores
  const T* lse = nullptr;    // [rows]; infinity where all probabilities are to be 0
  const T* delta = nullptr;  // [rows], sum of dout out
};
DRIVETRAIN_KERNEL void softmax_grad_rows_cpu(const SoftmaxGradRows<float>&);
DRIVETRAIN_KERNEL void softmax_grad_rows_cpu(const SoftmaxGradRows<double>&);

}  // namespace drivetrain::kernels
