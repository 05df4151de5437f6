// schedule/accumulate: the suite, of one stage.
#include "conformance/schedule_suite.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

TEST(Accumulate, passes_the_suite) {
  Host host;
  run_schedule_suite([&](int64_t, int64_t) { return make_plugin<Schedule>(host, "accumulate"); }, 1);
}

}  // namespace
}  // namespace drivetrain
