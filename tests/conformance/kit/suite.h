// A conformance suite: named cases that a plugin of one kind has to pass. Cases report by GoogleTest's expectations.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <drivetrain/value.h>

#include <drivetrain/testkit/kit/left_out.h>
#include <drivetrain/testkit/kit/plugins.h>
#include <drivetrain/testkit/kit/train.h>

namespace drivetrain::test {

// The plugin under test, found in installed_plugins().
struct Subject {
  std::string kind, name;
  Value options = Value::object();
  int64_t rank_multiple = 1;               // numbers of ranks that its options allow are multiples of this
  TrainFunction train = train_by_program;  // for suites of whole runs
  std::string text() const { return kind + "/" + name + " " + options.to_json(); }
};

struct SuiteCase {
  std::string name;  // a C++ identifier
  std::function<void(const Subject&)> run;
};
using Suite = std::vector<SuiteCase>;

// The suite of a kind; empty where there is none.
Suite suite_of(const std::string& kind);
std::vector<std::string> kinds_with_a_suite();

// All cases of the subject's kind, inside of a test.
void run_suite(const Subject& subject);

}  // namespace drivetrain::test
