// FLOPs per token by the published conventions, each under its system's name, so that anybody's TFLOPS can be compared
// like for like: TFLOPS of a rank = tokens per second of a rank x FLOPs per token / 1e12. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace drivetrain::study {

struct ModelShape {
  int64_t layers = 0, hidden = 0, heads = 0, groups = 0, head_dim = 0, ffn = 0, vocab = 0, seq_length = 0;
  double parameters = 0;
  bool gated = false;  // the MLP has three matrices
};

struct Convention {
  std::string name;   // "megatron_sc21"
  std::string about;  // what it counts, one line
  double flops = 0;   // per token
};

// `recomputes`: whether any layer is computed again, which is all that these formulas know (c = 4 instead of 3).
// megatron_lm and palm count no recomputation.
std::vector<Convention> conventions(const ModelShape& shape, bool recomputes);

// What a step really takes: the model's own FLOPs (3 passes), of which the output layer is never computed again, and
// `fraction` of the rest a fourth time.
double hardware_flops(double model_flops, const ModelShape& shape, double fraction);

}  // namespace drivetrain::study
