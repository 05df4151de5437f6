// One Adam step over plain arrays in one pass: 28 bytes per float32 element, nothing else in memory.
//
// Source: Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 2; Kingma and Ba 2015 for L2
// mode.
//   g = g grad_scale + l2 p;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   p = p (1 - lr wd);        p = p - lr (m / c1) / (sqrt(v / c2) + eps)      c1 = 1 - b1^k, c2 = 1 - b2^k
// Thread: LibTorch's pool inside; elements are independent, so threads, chunks and shards do not change the bits.
#pragma once

#include <cstdint>

// Factors in double; a float32 loop rounds each once.
struct AdamStep {
  double grad_scale = 1, l2 = 0, shrink = 1;  // shrink: 1 - lr wd
  double beta1 = 0, beta2 = 0;
  double step_size = 0;   // lr / c1
  double root_scale = 0;  // 1 / sqrt(c2)
  double eps = 0;
};

void adam_loop(float* p, const float* g, float* m, float* v, int64_t n, const AdamStep& step);
void adam_loop(double* p, const double* g, double* m, double* v, int64_t n, const AdamStep& step);
