// Cross entropy of logits whose vocabulary is cut over ranks, in two passes with an exchange between them: each rank
// says maximum, sum of exponentials and the label's logit of its part of a row; with those of all parts, gathered, it
// finishes loss and gradient.
//
// Source: Shoeybi et al. 2019, "Megatron-LM", section 3, for the cut; the three numbers travel in one gather instead of
// three sums. Legend: N rows, V columns of this part, R parts.
#pragma once

#include "kernels/common/kernel.h"

namespace drivetrain::kernels {

struct PartCrossEntropy {
  void* logits = nullptr;           // [N, V], in and out
  const int64_t* labels = nullptr;  // [N], over all parts; a negative one does not count
  int64_t rows = 0, columns = 0;
  int64_t valid = 0;  // columns before it are of the vocabulary, the rest is padding, which counts as minus infinity
  int64_t first = 0;  // label of column 0
  int64_t vocabulary = 0;  // of all parts; labels from there on: loss NaN, gradient zero
  double* part =
      nullptr;  // [N, 3]: maximum, sum of e^(logit - maximum), the label's logit or 0 where it is another part's
  const double* parts = nullptr;  // [R, N, 3]: every rank's, in rank order
  int64_t ranks = 1;
  double* loss = nullptr;  // [N], the whole vocabulary's, equal on all ranks; zero where the label does not count
  bool gradient =
      true;  // of the second pass: logits := scale (softmax - onehot), padding and rows that do not count zero
  double scale = 1;
  Dtype dtype = Dtype::f32;
  float logit_scale = 1, softcap = 0;  // as in cross_entropy.h; `part` is of logits
};
// Reads the logits once and writes `part`.
DRIVETRAIN_KERNEL void part_cross_entropy_begin_cpu(const PartCrossEntropy&, int64_t row_begin, int64_t row_end);
DRIVETRAIN_KERNEL int part_cross_entropy_begin_cuda(const PartCrossEntropy&, void* stream);
// Reads `parts`; reads and writes the logits once, not at all without `gradient`.
DRIVETRAIN_KERNEL void part_cross_entropy_end_cpu(const PartCrossEntropy&, int64_t row_begin, int64_t row_end);
DRIVETRAIN_KERNEL int part_cross_entropy_end_cuda(const PartCrossEntropy&, void* stream);

}  // namespace drivetrain::kernels
