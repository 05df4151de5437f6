// The conformance suite of checkpoint_store over every built implementation.
#include <gtest/gtest.h>

#include <drivetrain/checkpoint_store.h>

#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {
namespace {

TEST(CheckpointStoreConformance, every_built_store_passes) {
  const auto names = installed_plugins().names(CheckpointStore::kKind);
  EXPECT_FALSE(names.empty());
  for (const std::string& name : names) run_suite({CheckpointStore::kKind, name});
}

}  // namespace
}  // namespace drivetrain::test
