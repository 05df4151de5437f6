// What data_parallel/zero plans for a section of GPT-2 124M. For its tests.
#pragma once

#include "support/sharding_plan.h"
#include "zero.h"

namespace drivetrain::test {

// GPT-2 124M.
inline ModelFacts model() {
  ModelFacts facts;
  facts.hidden_size = 768, facts.ffn_hidden_size = 3072, facts.vocab_size = 50304, facts.parameters = 124'475'904;
  return facts;
}

inline ZeroOptions parsed(const std::string& json) {
  return parsed_options<Zero>(json, "data_parallel/zero", "zero_optimization");
}

struct Planned : PlannedSharding<Zero> {
  Planned(const std::string& json, const Given& run = {}) : PlannedSharding(parsed(json), model(), run) {}
};

}  // namespace drivetrain::test
