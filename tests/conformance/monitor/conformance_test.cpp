// The conformance suite of monitors, over those that are built.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <drivetrain/testkit/kit/suite.h>
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

TEST(MonitorConformance, every_built_monitor_passes) {
  at::set_num_threads(1);
  const std::vector<std::string> names = installed_plugins().names("monitor");
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) run_suite({.kind = "monitor", .name = name, .train = train_by_threads});
}

}  // namespace
}  // namespace drivetrain::test
