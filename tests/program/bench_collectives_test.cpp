// `drivetrain bench collectives` and what several ranks tell of themselves. Never what anything took.
#include <map>

#include "program/bench_fixture.h"

namespace drivetrain::test {
namespace {

TEST_F(Bench, the_peak_memory_of_every_rank_is_told) {
  const Ran ran = on_stdout("launch -n 2 --bench step " + path("tiny.json") + " --steps 1 --warmup 0 --json");
  ASSERT_EQ(ran.code, 0) << ran.output << file_bytes(path("errors.txt"));
  const Value value = parse_json(ran.output, "bench");
  const Value::Array& peaks = value.find("peak_memory_bytes_by_rank")->items();
  ASSERT_EQ(peaks.size(), 2u);
  for (const Value& peak : peaks) EXPECT_GT(peak.as_int(), 1 << 20);
}

// (n - 1) / n of what one of n ranks has to send, as nccl-tests counts it.
void expect_collectives(const Value& value, int64_t ranks, const std::map<std::string, double>& factors) {
  std::map<std::string, std::set<std::string>> buffers;
  for (const Value& one : value.find("results")->items()) {
    const std::string op = one.find("op")->as_string();
    buffers[op].insert(one.find("buffers")->as_string());
    ASSERT_TRUE(factors.count(op)) << op;
    EXPECT_DOUBLE_EQ(one.find("bus_factor")->as_double(), factors.at(op)) << op;
    const double algorithm = one.find("algorithm_bytes_per_s")->as_double();
    const double median = one.find("seconds")->find("median")->as_double();
    EXPECT_DOUBLE_EQ(algorithm, one.find("bytes")->as_double() / median);
    EXPECT_DOUBLE_EQ(one.find("bus_bytes_per_s")->as_double(), algorithm * factors.at(op));
    EXPECT_DOUBLE_EQ(one.find("algorithm_bits_per_s")->as_double(), 8 * algorithm);
    EXPECT_DOUBLE_EQ(one.find("bus_bits_per_s")->as_double(), 8 * algorithm * factors.at(op));
    expect_spread(one, "seconds");
    EXPECT_EQ(one.find("rounds_s")->items().size(), static_cast<size_t>(value.find("rounds")->as_int()));
    EXPECT_FALSE(one.find("communicator")->as_string().empty());
  }
  EXPECT_EQ(value.find("ranks")->as_int(), ranks);
  ASSERT_EQ(buffers.size(), factors.size());
  for (const auto& [op, kinds] : buffers) EXPECT_TRUE(kinds.count("mapped") && kinds.count("private")) << op;
}

TEST_F(Bench, every_collective_is_timed_between_two_processes_of_its_own) {
  const Value value = object("collectives --sizes 4K,12 --rounds 2 --threads 1");
  EXPECT_EQ(value.find("bench")->as_string(), "collectives");
  expect_collectives(value, 2,
                     {{"all_reduce", 1.0},
                      {"all_gather", 0.5},
                      {"reduce_scatter", 0.5},
                      {"all_to_all", 0.5},
                      {"broadcast", 1.0},
                      {"send_recv", 1.0}});
  std::set<int64_t> sizes;
  for (const Value& one : value.find("results")->items()) sizes.insert(one.find("bytes")->as_int());
  EXPECT_EQ(sizes, (std::set<int64_t>{8, 4096}));  // whole elements, the same for every rank
}

TEST_F(Bench, collectives_run_under_launch_with_a_choice_of_ranks_calls_and_communicators) {
  const Ran ran = on_stdout(
      "launch -n 3 --bench collectives --op all_reduce,all_gather --from 1K --to 2K --rounds 1 "
      "--threads 1 --communicator local --set communicator.timeout_s=50 --json");
  ASSERT_EQ(ran.code, 0) << ran.output << file_bytes(path("errors.txt"));
  expect_collectives(parse_json(ran.output, "bench"), 3, {{"all_reduce", 4.0 / 3}, {"all_gather", 2.0 / 3}});
}

TEST_F(Bench, collectives_refuse_what_they_cannot_time) {
  expect_refused("bench collectives --op all_sum", 2, {"--op wants", "all_reduce", "send_recv", "\"all_sum\""});
  expect_refused("bench collectives --sizes 4T", 2, {"--sizes wants bytes", "64K", "\"4T\""});
  expect_refused("bench collectives --from 1M --to 4K", 2,
                 {"smallest size, 1048576 bytes, is above the largest, 4096"});
  expect_refused("bench collectives --sizes 4K --to 8K", 2, {"--sizes and --from, --to exclude each other"});
  expect_refused("bench collectives -n 1", 2, {"-n wants a whole number of at least 2", "\"1\""});
  expect_refused("launch --bench collectives --op all_reduce", 2,
                 {"one of 1 ranks", "drivetrain bench collectives -n 2"});
  expect_refused("launch -n 2 --bench collectives --communicator locl --sizes 4K", 3, {"locl"});
  expect_refused("launch -n 2 --bench collectives --set optimizer.lr=1 --sizes 4K", 2,
                 {"--set wants communicator.OPTION=VALUE", "optimizer.lr=1"});
  expect_refused("launch -n 2 tiny.json --bench collectives", 2, {"--bench collectives takes no config", "tiny.json"});
  expect_refused("launch -n 2 --bench collectives --steps 3", 2, {"--steps goes with --bench step"});
  expect_refused("launch -n 2 tiny.json --op all_reduce", 2, {"--op goes with --bench collectives"});
  expect_refused("launch -n 2", 2, {"something is missing", "usage: drivetrain launch"});
}

}  // namespace
}  // namespace drivetrain::test
