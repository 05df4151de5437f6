// A few steps of AdamW with clipping and a schedule by plain formulas in float64, and with them how far a right float32
// implementation may be away. Thread: the caller's.
//
// Tolerances rest on two assumptions about float32. A gradient's element differs from the exact one by at most 16 units
// in the last place of the elements around it (those of its row and column): each block has about 15 roundings in a row
// on the way there and as many back, of either sign, every one of a single term among many. A loss, being a mean, is
// off by at most 4 such units of the largest logit. Measured over the 30 cases: differences are at most half of the
// tolerance that comes out, typically 0.02 to 0.2 of it, while a forgotten clipping, another beta2 or a changed label
// lie 2.7 to 300,000 times beyond. The rest follows:
//  - AdamW moves an element by lr u, where u = m / (sqrt(v) + eps) of bias-corrected averages. Gradients that are off
//  by at most
//    d move m and sqrt(v) by at most d, so u by at most (1 + C) d / (sqrt(v) + eps), where C bounds |u| (Cauchy-Schwarz
//    over the weights of both averages, about 1); and never by more than 2 C. So elements whose gradient is noise are
//    free.
//  - Weights that are off by w move the loss by at most the sum of |gradient| w. How they move gradients is tried:
//  weights moved
//    by w with random signs, the difference doubled.
#pragma once

#include <vector>

#include "composition/random_case.h"

namespace drivetrain::test {

struct PlainStep {
  double loss = 0, grad_norm = 0, lr = 0;
  int64_t tokens = 0;
  double loss_tolerance = 0, norm_tolerance = 0;  // absolute
};

struct PlainRun {
  std::vector<PlainStep> steps;
  Weights final, tolerance;  // float64; absolute, by element
};

PlainRun train_plainly(const Case& c, const Weights& start);

// All tensors of a safetensors file, in float64.
Weights read_weights(const std::string& path);

}  // namespace drivetrain::test
