// What every strategy must do: the same numbers twice, and after a stop. What one that answers LayerFactory::block must
// do besides: parameters of the plain block, its outputs and gradients, whatever is kept, frozen or put off.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/testkit/kit/suite.h>
#include <drivetrain/testkit/strategy/chain.h>

namespace drivetrain::test {

// Gives a fresh strategy.
using FusedBlockMaker = std::function<std::shared_ptr<Strategy>(const Host&)>;

// Options of model/gpt: two blocks with nothing round about them, and `more`, which begins with a comma.
std::string block_model(const std::string& more);
// All shapes that the options can make, dropout in every third; one with everything that can be kept, dropped or drawn
// again.
std::vector<std::string> block_models();
std::string full_block_model();

struct TrainedOnce {
  PassResult pass;
  std::map<std::string, at::Tensor> slots;
};
// Two micro-batches through a model with everything that can be kept, dropped or drawn again.
TrainedOnce train_once(const FusedBlockMaker& make, at::ScalarType dtype, const std::map<std::string, Keep>& keep = {},
                       Part part = Part::whole);

struct FusedBlockCase {
  const char* name;
  void (*run)(const FusedBlockMaker&);
};
// The cases of the suite, for strategies that a test makes.
std::vector<FusedBlockCase> fused_block_cases();
// False: a strategy whose cases of blocks are left out.
bool makes_blocks(const FusedBlockMaker& make);
// Whole runs, of every strategy.
Suite strategy_run_cases();
Suite fused_block_suite();

}  // namespace drivetrain::test
