// A run without a precision passes the suite of that kind.
#include "conformance/precision/suite.h"

namespace drivetrain::test {
namespace {

TEST(Float32Run, passes_the_suite_of_precisions) { run_precision_suite({"", Dtypes(), "fp32", 1e-4, 1e-3, 1e-3}); }

}  // namespace
}  // namespace drivetrain::test
