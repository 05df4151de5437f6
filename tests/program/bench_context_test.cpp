// `drivetrain bench context`: what it tells and what it refuses. Never what anything took.
#include "program/bench_fixture.h"

namespace drivetrain::test {
namespace {

// Of "one rank alone" there is no plugin.
std::set<std::string> names_of(const Value& value) {
  std::set<std::string> names;
  for (const Value& one : value.find("results")->items()) {
    const Value& name = *one.find("context_parallel");
    names.insert(name.is_null() ? "" : name.as_string());
    for (const char* key : {"forward_s", "forward_backward_s", "forward_ratio", "ratio"}) expect_spread(one, key);
  }
  return names;
}

TEST_F(Bench, attention_over_shared_sequences_is_timed_between_two_processes_of_its_own) {
  const Value value = object("context --seq 64 --heads 4 --groups 2 --head-size 8 --rounds 2 --threads 1");
  EXPECT_EQ(value.find("bench")->as_string(), "context");
  EXPECT_EQ(value.find("ranks")->as_int(), 2);
  EXPECT_EQ(value.find("shape")->as_string(), "B 1, S 64, H 4 over 2, D 8, causal, Float");
  EXPECT_EQ(names_of(value), (std::set<std::string>{"", "ring", "ulysses"}));
  EXPECT_EQ(value.find("results")->items()[0].find("ratio")->find("max")->as_double(), 1);
}

TEST_F(Bench, attention_over_shared_sequences_runs_under_launch_and_names_who_cannot) {
  const Ran ran = on_stdout(
      "launch -n 3 --bench context --seq 66 --heads 2 --head-size 8 --rounds 1 --threads 1 --attention standard");
  ASSERT_EQ(ran.code, 0) << ran.output << file_bytes(path("errors.txt"));
  expect_says(ran.output, {"3 ranks", "attention/standard", "ring", "ulysses is left out", "2 query heads", "3 ranks"});
}

TEST_F(Bench, attention_over_shared_sequences_refuses_what_it_cannot_time) {
  expect_refused("bench context -n 1", 2, {"-n wants a whole number of at least 2", "\"1\""});
  expect_refused("bench context --heads 6 --groups 4", 2, {"--groups 4 does not divide --heads 6"});
  expect_refused("launch -n 2 --bench context --attention flsh", 3, {"flsh"});
  expect_refused("launch --bench context", 2, {"one of 1 ranks", "drivetrain bench context -n 2"});
  expect_refused("launch -n 2 tiny.json --bench context", 2, {"--bench context takes no config", "tiny.json"});
  expect_refused("launch -n 2 tiny.json --seq 64", 2, {"--seq goes with --bench context"});
}

}  // namespace
}  // namespace drivetrain::test
