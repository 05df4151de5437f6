// What the matrix relies on where its model is a mixture: experts are chosen unevenly, and no choice is so close that a
// rounding could turn it.
#include <gtest/gtest.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "matrix/curve.h"

namespace drivetrain::test {
namespace {

// Runs of the matrix with another order of sums have final weights that differ by less than 1e-6, and scores by a few
// times that.
constexpr double kMargin = 5e-5;

TEST(MatrixMixture, chooses_unevenly_and_never_between_scores_that_are_close) {
  static const Registry registry(SearchPath::standard({}, {DRIVETRAIN_MARGINS_DIR}, ""));
  const TempFolder folder;
  Value config = config_of(cell_of({"moe", "plain", "standard"}), base_config());
  config.set("output_dir", folder.path("run"));
  config.set("strategy", Value::Object{{"type", "margins"}, {"params", Value::Object{{"margin", kMargin}}}});
  int routers = 0;
  double without = 0;
  for (const Value& line : run_threads(config, 1, registry).metrics)
    for (const Value::Member& figure : line.members()) {
      const double value = figure.value.is_number() ? figure.value.as_double() : 0;
      if (figure.key.ends_with(".close")) {
        EXPECT_EQ(value, 0) << figure.key;
      } else if (figure.key.ends_with(".load")) {
        EXPECT_GT(value, 1.2) << figure.key;
      } else if (figure.key.ends_with(".without")) {
        ++routers, without += value;
      }
    }
  EXPECT_EQ(routers, 2 * kSteps);
  EXPECT_GT(without, 0) << "every expert has a token of every row";
}

}  // namespace
}  // namespace drivetrain::test
