// One token of a distribution. Any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <drivetrain/random.h>

#include <cstdint>

#include "internal.h"

namespace drivetrain {

struct Sampling {
  double temperature = 1;  // 0: the likeliest token
  int64_t top_k = 0;       // of so many of the likeliest; 0: of all
  double top_p = 1;        // of the fewest likeliest whose probabilities sum up to this (Holtzman et al. 2020)
};

// Error(config), naming the option, for what no vocabulary of `vocab_size` tokens has.
DRIVETRAIN_INTERNAL void check_sampling(const Sampling& sampling, int64_t vocab_size);

// logits [V] on the CPU. As transformers does it: temperature, then top_k, then top_p. Of equal logits the smaller
// token counts as the likelier one. The key alone decides the draw. Error(numeric) for logits that are not finite.
DRIVETRAIN_INTERNAL int64_t sample(const at::Tensor& logits, const Sampling& sampling, const RandomKey& key);

}  // namespace drivetrain
