// Cross entropy of a chunk of logits, which become their own gradient:
// logits[n] := softmax(logits[n]) - onehot(label[n]), zero for a row that does not count;
// loss[n] = log sum exp(logits[n]) - logits[n][label[n]].
//
// Source: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax":
// maximum and sum in one pass, the gradient in a second. Legend: N rows of the chunk, V vocabulary.
// Where the matrix has z and a logit is f(z) = softcap tanh(logit_scale z / softcap), or logit_scale z without a
// softcap (Gemma 2), the gradient is that of z.
#pragma once

#include "kernels/common/kernel.h"

namespace drivetrain::kernels {

struct CrossEntropy {
  void* logits = nullptr;           // [N, V], in and out
  const int64_t* labels = nullptr;  // [N]; a negative one does not count; from V on: loss NaN, gradient zero
  double* loss = nullptr;           // [N], zero where the label does not count
  int64_t rows = 0, columns = 0;
  bool gradient = true;  // false: the logits stay as they are
  double scale = 1;      // of the gradient
  Dtype dtype = Dtype::f32;
  int64_t stride = 0;  // elements from one row to the next; 0: `columns`. What lies between rows is not touched
  float logit_scale = 1, softcap = 0;  // logit_scale > 0; softcap 0: none
};
DRIVETRAIN_KERNEL void cross_entropy_cpu(const CrossEntropy&, int64_t row_begin, int64_t row_end);
DRIVETRAIN_KERNEL int cross_entropy_cuda(const CrossEntropy&, void* stream);

}  // namespace drivetrain::kernels
