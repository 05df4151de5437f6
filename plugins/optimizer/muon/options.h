// The options of optimizer/muon: DeepSpeed's names, and torch's for what DeepSpeed fixes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <drivetrain/toolkit/schedule/weight_decay.h>

#include "newton_schulz.h"

namespace drivetrain::muon {

struct Options : WeightDecay {
  std::optional<double> lr, muon_lr, adam_lr;
  double momentum = 0.95;
  bool nesterov = true;
  std::string adjust_lr_fn = "original", ns_method = "gram", ns_dtype = "bfloat16";
  int64_t ns_steps = 5;
  std::vector<double> ns_coefficients = {3.4445, -4.7750, 2.0315};
  double ns_eps = 1e-7;
  bool per_head_muon = false;
  std::vector<double> betas = {0.9, 0.95};
  double eps = 1e-10;
  PluginChoice rest = {.type = "adamw"};  // a default, in whose place a config may name another one
  bool bias_correction = true, adam_w_mode = true, amsgrad = false, torch_adam = false, fp32_optimizer_states = true;

  double rate_of_matrices() const { return muon_lr ? *muon_lr : lr.value_or(0.02); }
  double rate_of_rest() const { return adam_lr ? *adam_lr : lr.value_or(3e-4); }
  NewtonSchulz newton_schulz() const;
  // By what the orthogonal matrix is multiplied beside the rate.
  double scale(int64_t rows, int64_t columns) const;
};

// Refuses values that fit no table, and those that contradict each other.
OptionTable option_table();
// The optimizer of all other parameters, with what its own params leave open from this table.
PluginChoice rest(const Options& options);

}  // namespace drivetrain::muon
