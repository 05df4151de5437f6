// What every implementation of tensor_parallel must do: several ranks together compute what one does - outputs,
// gradients between units, every parameter's gradient, losses and logits - in float64, with dropout, for the shapes of
// GPT that there are.
//
// A plugin is asked for its ranks by "size". How a rank is driven stands in rank.h.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/testkit/kit/suite.h>
#include <drivetrain/testkit/tensor_parallel/rank.h>

namespace drivetrain::test {

// GPT-2 and Llama shapes; 8 heads, so that 4 ranks can have 4 key/value heads. 13 tokens divide by nothing.
std::vector<std::string> tensor_parallel_models();

void check_tensor_parallel(const TensorParallelTrial& trial);

Suite tensor_parallel_suite();

}  // namespace drivetrain::test
