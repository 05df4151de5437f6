// The conformance suite of precision over every built implementation, and over a run without one.
#include <gtest/gtest.h>

#include <drivetrain/precision.h>

#include <drivetrain/testkit/precision/suite.h>
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

TEST(PrecisionConformance, a_run_without_one_passes) {
  run_precision_suite({"", Dtypes(), "fp32", 1e-4, 1e-3, 1e-3}, train_by_threads);
}

// Each activation is rounded to 8 bits, their sums are not: losses within 0.5 % of float32's, norms within 5 %.
TEST(PrecisionConformance, bf16_passes) {
  const Dtypes types = {at::kBFloat16, at::kFloat, at::kFloat, at::kFloat};
  run_precision_suite({R"("bf16": {"enabled": true})", types, "bf16", 0.005, 0.05, 0.05}, train_by_threads);
}

// Each activation is rounded to 11 bits: an eighth of bfloat16's distance to float32.
TEST(PrecisionConformance, fp16_passes) {
  const Dtypes types = {at::kHalf, at::kFloat, at::kFloat, at::kFloat};
  run_precision_suite({R"("fp16": {"enabled": true})", types, "fp16", 0.001, 0.01, 0.01}, train_by_threads);
}

TEST(PrecisionConformance, others_pass_by_what_their_types_allow) {
  for (const std::string& name : installed_plugins().names(Precision::kKind))
    if (name != "bf16" && name != "fp16")
      run_suite({.kind = Precision::kKind, .name = name, .train = train_by_threads});
}

}  // namespace
}  // namespace drivetrain::test
