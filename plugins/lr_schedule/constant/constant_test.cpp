// lr_schedule/constant: what the optimizer says, always.
#include "conformance/lr_schedule/golden.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

TEST(Constant, leaves_the_optimizers_values) {
  Host host;
  const auto schedule = make_plugin<LrSchedule>(host, "constant");
  check_pure_function(*schedule);
  for (const int64_t update : {0, 1, 1000000}) EXPECT_EQ(rate_at(*schedule, update, {0.003, 0, 0}), 0.003);
}

TEST(Constant, has_no_options) {
  Host host;
  EXPECT_NE(error_of([&] { make_plugin<LrSchedule>(host, "constant", R"({"lr": 1})"); }).find("lr is not an option"),
            std::string::npos);
}

}  // namespace
}  // namespace drivetrain
