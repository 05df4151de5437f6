// For tests that prove that conformance suites find mistakes: subjects in which one mistake was planted, and what a
// case says of them.
//
// conformance/KIND/mistaken.cpp is a plugin KIND/mistaken in a library of its own, which is not installed. Its option
// "mistake" chooses one of the mistakes; without it the plugin is right.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {

// What the expectations say that fail in `action`, on any thread, and what it throws; "" where all hold.
template <class Action>
std::string failures_of(const Action& action) {
  testing::TestPartResultArray results;
  const testing::ScopedFakeTestPartResultReporter reporter(
      testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &results);
  std::string text;
  try {
    action();
  } catch (const std::exception& e) {
    text = concat("exception: ", e.what(), "\n");
  }
  for (int i = 0; i < results.size(); ++i)
    if (results.GetTestPartResult(i).failed()) text += concat(results.GetTestPartResult(i).message(), "\n");
  return text;
}

struct PlantedMistake {
  const char* name;
  const char* found_by;  // the case that is meant for it
  const char* says;      // part of what the case has to say
};

inline void expect_found(const PlantedMistake& planted, const std::string& failures) {
  EXPECT_NE(failures, "") << planted.found_by << " did not find " << planted.name;
  EXPECT_NE(failures.find(planted.says), std::string::npos)
      << planted.found_by << " finds " << planted.name << ", and does not say \"" << planted.says << "\":\n"
      << failures.substr(0, 1000);
}

inline SuiteCase case_of(const std::string& kind, const std::string& name) {
  for (const SuiteCase& c : suite_of(kind))
    if (c.name == name) return c;
  throw fail(ErrorCode::internal, "the suite of ", kind, " has no case ", name);
}

struct MistakenRuns {
  Value options = Value::object();                 // that the plugin requires
  TrainFunction train = train_by_program;          // for suites of whole runs
  bool right_runs_cases_of_mistakes_only = false;  // where a whole suite takes long
};

// A library's first plugin without a mistake passes the suite, and each mistake is found by the case meant for it.
inline void expect_suite_finds(const std::string& library, const std::vector<PlantedMistake>& mistakes,
                               const MistakenRuns& runs = {}) {
  at::set_num_threads(1);  // the work is small, and other tests run beside
  const Plugins::Name entry = installed_plugins().open(library).at(0);
  Subject subject{.kind = entry.kind, .name = entry.name, .options = runs.options, .train = runs.train};
  std::set<std::string> cases;
  for (const PlantedMistake& planted : mistakes) cases.insert(planted.found_by);
  for (const SuiteCase& c : suite_of(entry.kind)) {
    if (runs.right_runs_cases_of_mistakes_only && !cases.contains(c.name)) continue;
    EXPECT_EQ(failures_of([&] { c.run(subject); }), "") << c.name << " of a right plugin";
  }
  for (const PlantedMistake& planted : mistakes) {
    SCOPED_TRACE(planted.name);
    subject.options.set("mistake", planted.name);
    Problems problems;  // a name that the plugin does not know would look like a mistake that was found
    installed_plugins().options(entry.kind, entry.name).parse(subject.options, entry.text(), "params", problems);
    problems.throw_if_any();
    const SuiteCase found_by = case_of(entry.kind, planted.found_by);
    expect_found(planted, failures_of([&] { found_by.run(subject); }));
  }
}

}  // namespace drivetrain::test
