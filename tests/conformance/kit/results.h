// What the program drivetrain-conformance tells of its cases: lines beside GoogleTest's, one JSON object, JUnit XML.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <drivetrain/value.h>

#include <drivetrain/testkit/kit/left_out.h>
#include <drivetrain/testkit/kit/promises.h>

namespace drivetrain::test {

struct CaseResult {
  std::string plugin, name;  // "optimizer/momentum", "gradients_are_not_touched"
  Promise promise;
  double seconds = 0;
  std::vector<std::string> failures;  // with the numbers
  std::vector<LeftOut> left_out;
};

// {"passed": true, "cases": [{"plugin", "case", "contract", "sentence", "passed", "seconds", "failures", "left_out"}]}
Value results_value(const std::vector<CaseResult>& results);
// As CI systems read it. Characters that XML has no place for become '?'.
std::string junit_text(const std::vector<CaseResult>& results);

// Collects the results of the tests that run; behind a failed case it prints which sentence of the contract was broken,
// and behind every plugin's cases what was not tried, unless it is `quiet`. Owned by GoogleTest.
class Collector : public testing::EmptyTestEventListener {
 public:
  Collector(std::vector<CaseResult>& results, bool quiet) : results_(results), quiet_(quiet) {}
  void OnTestStart(const testing::TestInfo& test) override;
  void OnTestPartResult(const testing::TestPartResult& part) override;
  void OnTestEnd(const testing::TestInfo& test) override;
  void OnTestSuiteEnd(const testing::TestSuite& suite) override;

 private:
  std::vector<CaseResult>& results_;
  const bool quiet_;
};

}  // namespace drivetrain::test
