// How rotary angles follow from a base and from what config.json calls rope_scaling or rope_parameters. Value types;
// pure functions; any thread. Errors: config.
//
// Source: transformers, modeling_rope_utils.py. linear: Chen et al. 2023; yarn: Peng et al. 2023; longrope: Ding et al.
// 2024; llama3: Llama 3.1's code.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <drivetrain/value.h>

namespace drivetrain::gpt {

struct RotaryScaling {
  double base = 10000;
  std::string type =
      "default";  // linear, dynamic, llama3, yarn or longrope; only what it needs counts of the following
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;         // llama3
  double beta_fast = 32, beta_slow = 1;                     // yarn
  double mscale = 0, mscale_all_dim = 0;                    // yarn; 0: not given
  bool truncate = true;                                     // yarn
  double attention_factor = 0;                              // yarn, longrope; 0: follows from the others
  std::vector<double> short_factor = {}, long_factor = {};  // longrope, one for each pair
  int64_t original_positions = 0;                           // llama3, yarn, longrope
};

struct RotaryAngles {
  std::vector<double> frequencies;  // radians per token of each of dim / 2 pairs
  double scale = 1;                 // of cosine and sine
};
// `length`: of the sequences at hand, which longrope goes by.
RotaryAngles rotary_angles(const RotaryScaling& scaling, int64_t dim, int64_t length);

// An object with rope_type (or type) and what this type needs. `base`: what the object does not say. `positions`: of
// the model; `original`: the key of config.json outside of the object. `where`: for messages.
RotaryScaling read_scaling(const Value& group, const RotaryScaling& base, int64_t positions,
                           std::optional<int64_t> original, const std::string& where);
// {"rope_type": "llama3", ...}, without the base; null for angles that are not stretched.
Value scaling_value(const RotaryScaling& scaling);
bool same_scaling(const RotaryScaling& a, const RotaryScaling& b);

}  // namespace drivetrain::gpt
