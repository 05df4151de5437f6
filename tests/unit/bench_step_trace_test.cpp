// The trace of a step: events that a viewer can draw, in the places where they belong.
#include "bench/step_trace.h"

#include <gtest/gtest.h>

#include <map>

namespace drivetrain {
namespace {

// One step with a call that is waited for at once and two that run beside each other.
Value traced(FlightRecord& record) {
  StepTrace trace(record);
  const size_t dp = record.group("dp@0");
  const auto begin = [&](int64_t number) {
    const uint64_t serial = record.begin(dp, {FlightOp::all_reduce, number, 64, -1, -1});
    record.pending(serial);
    return serial;
  };
  const auto wait = [&](uint64_t serial) { record.waiting(serial), record.done(serial); };
  record.at_step(1);
  record.at(FlightDoing::forward, 0);
  wait(begin(1));
  record.at(FlightDoing::backward, 0);
  const uint64_t first = begin(2), second = begin(3);
  record.at(FlightDoing::agree);
  wait(first), wait(second);
  record.at(FlightDoing::update);
  record.at(FlightDoing::outside);
  record.at_step(2);  // has no end: it is left out
  record.at(FlightDoing::forward, 0);
  begin(4);
  return trace.to_value();
}

TEST(StepTrace, slices_of_a_track_lie_within_each_other_or_apart) {
  FlightRecord zero(0, 2), one(1, 2);
  const Value trace = parse_json(trace_of({traced(zero), traced(one)}).to_json(), "trace");
  std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<double, double>>> tracks;
  std::map<std::pair<int64_t, int64_t>, std::string> names;
  std::multiset<std::string> slices;
  for (const Value& event : trace.find("traceEvents")->items()) {
    const std::pair track{event.find("pid")->as_int(), event.find("tid")->as_int()};
    if (event.find("ph")->as_string() == "M") {
      if (event.find("name")->as_string() == "thread_name")
        names[track] = event.find("args")->find("name")->as_string();
      continue;
    }
    ASSERT_EQ(event.find("ph")->as_string(), "X");
    EXPECT_GE(event.find("dur")->as_double(), 0);
    const double begin = event.find("ts")->as_double(), end = begin + event.find("dur")->as_double();
    for (const auto& [other, other_end] : tracks[track])
      EXPECT_TRUE(end <= other + 1e-3 || begin >= other_end - 1e-3 ||
                  (begin >= other - 1e-3 && end <= other_end + 1e-3))
          << event.to_json();
    tracks[track].emplace_back(begin, end);
    if (track.first == 0) slices.insert(event.find("name")->as_string());
  }
  EXPECT_EQ(slices.count("step 1"), 1u);
  EXPECT_EQ(slices.count("step 2"), 0u);
  for (const char* part : {"forward", "backward", "agree", "update"}) EXPECT_EQ(slices.count(part), 1u) << part;
  EXPECT_EQ(slices.count("all_reduce"), 3u);
  EXPECT_EQ(slices.count("in all_reduce"), 6u) << "each was called, and waited for";
  const auto named = [&](int64_t rank, const std::string& name) {
    return std::count_if(names.begin(), names.end(),
                         [&](const auto& one) { return one.first.first == rank && one.second == name; });
  };
  for (const int64_t rank : {0, 1}) {
    EXPECT_EQ(named(rank, "step"), 1);
    EXPECT_EQ(named(rank, "communication dp@0"), 2) << "two calls overlap";
  }
}

}  // namespace
}  // namespace drivetrain
