// The conformance suite of expert_parallel over every installed implementation.
#include <gtest/gtest.h>

#include <drivetrain/testkit/expert_parallel/suite.h>
#include <drivetrain/testkit/kit/poisoned_memory.h>
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

PoisonedMemory poisoned;

TEST(ExpertParallelConformance, every_plugin_passes) {
  const std::vector<std::string> names = installed_plugins().names(ExpertParallel::kKind);
  EXPECT_FALSE(names.empty());
  for (const std::string& name : names)
    run_suite({.kind = ExpertParallel::kKind, .name = name, .train = train_by_threads});
}

}  // namespace
}  // namespace drivetrain::test
