// What every recompute policy must do: nothing to the numbers. Small models are trained with the policy and without;
// losses, norms, evaluations and final weights must agree to the last bit.
//
// `recompute_difference` tells the first difference, so that a test can also see that the suite finds one.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {

struct RecomputeCase {
  const char* name;      // of the case, as words
  const char* sections;  // of the config, besides the common ones
  int ranks = 1, accumulation = 1;
  const char* model = "";  // further options of the model
};

const std::vector<RecomputeCase>& recompute_cases();
Value recompute_config(const RecomputeCase& c);

// Everything of a run that a policy must not change, one line per step, then a digest of the weights. `policy`: the
// section "activation_checkpointing"; null: none.
std::string recompute_bits(const RecomputeCase& c, const Value* policy, const TrainFunction& train);
// Empty: none. `plain`: what the case gives without the policy.
std::string recompute_difference(const RecomputeCase& c, const Value& policy, const std::string& plain,
                                 const TrainFunction& train);

Suite recompute_suite();
void run_recompute_suite(const Value& policy, const TrainFunction& train);

}  // namespace drivetrain::test
