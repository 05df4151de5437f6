// The conformance suite of dataset over the one that needs no files; the others are tested beside their code.
#include <gtest/gtest.h>

#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {
namespace {

TEST(DatasetConformance, synthetic_passes) {
  run_suite({"dataset", "synthetic", parse_json(R"({"seq_length": 48})", "test")});
}

}  // namespace
}  // namespace drivetrain::test
