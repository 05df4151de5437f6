// The conformance suite of attention over every built implementation.
#include <gtest/gtest.h>

#include <drivetrain/attention.h>

#include <drivetrain/testkit/kit/poisoned_memory.h>
#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {
namespace {

const PoisonedMemory poisoned;

TEST(AttentionConformance, every_built_attention_passes) {
  for (const std::string& name : installed_plugins().names(Attention::kKind)) run_suite({Attention::kKind, name});
}

}  // namespace
}  // namespace drivetrain::test
