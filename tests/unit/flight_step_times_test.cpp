// Where the time of steps goes, from what a flight record is told: parts of a step, calls of the communicator.
#include "watch/step_times.h"

#include <gtest/gtest.h>

#include <thread>

namespace drivetrain {
namespace {

// Tells a listener of one step that begins at `at_s`: forward of 2 s with an all_reduce that holds it up for 0.5 s, a
// backward of 3 s with one that runs beside it and is waited for 0.25 s, an update of 1 s.
void tell_step(FlightListener& to, int64_t step, double at_s, uint64_t serial) {
  const FlightCall call{FlightOp::all_reduce, 1, 1000, -1, -1};
  to.at({step, -1, FlightDoing::outside}, at_s);
  to.at({step, 0, FlightDoing::forward}, at_s);
  to.begun(serial, "tp@0", call, at_s + 1);
  to.is(serial, FlightState::pending, at_s + 1.1);
  to.is(serial, FlightState::waiting, at_s + 1.2);
  to.is(serial, FlightState::done, at_s + 1.6);
  to.at({step, 0, FlightDoing::backward}, at_s + 2);
  to.begun(serial + 1, "dp@0", call, at_s + 3);
  to.is(serial + 1, FlightState::pending, at_s + 3);
  to.is(serial + 1, FlightState::waiting, at_s + 4.5);
  to.is(serial + 1, FlightState::done, at_s + 4.75);
  to.at({step, -1, FlightDoing::update}, at_s + 5);
  to.at({step, -1, FlightDoing::outside}, at_s + 6);
}

double number(const Value& value, const char* key) { return value.find(key)->as_double(); }

TEST(StepTimes, adds_up_parts_and_what_the_thread_spends_in_communication) {
  StepTimes times;
  for (int64_t step = 1; step <= 3; ++step) tell_step(times, step, 100.0 * static_cast<double>(step), 10 * step);
  const Value value = times.to_value();
  EXPECT_EQ(value.find("steps")->as_int(), 2) << "the first step is left out";
  const Value& seconds = *value.find("seconds");
  EXPECT_NEAR(number(seconds, "forward"), 4, 1e-9);
  EXPECT_NEAR(number(seconds, "backward"), 6, 1e-9);
  EXPECT_NEAR(number(seconds, "update"), 2, 1e-9);
  EXPECT_EQ(seconds.find("load"), nullptr);
  const Value& communication = *value.find("communication");
  EXPECT_NEAR(number(communication, "seconds"), 2 * (0.5 + 0.25), 1e-9);
  const Value& all_reduce = *communication.find("by")->find("all_reduce");
  EXPECT_EQ(all_reduce.find("calls")->as_int(), 4);
  EXPECT_EQ(all_reduce.find("bytes")->as_int(), 4000);
}

TEST(StepTimes, leaves_out_what_lies_between_steps) {
  StepTimes times;
  tell_step(times, 1, 0, 1), tell_step(times, 2, 10, 11);
  // An evaluation behind the step goes through forwards of its own.
  times.at({2, 0, FlightDoing::forward}, 20), times.at({2, -1, FlightDoing::outside}, 30);
  times.begun(30, "dp@0", {FlightOp::barrier, 1, 0, -1, -1}, 31), times.is(30, FlightState::done, 35);
  const Value value = times.to_value();
  EXPECT_EQ(value.find("steps")->as_int(), 1);
  EXPECT_NEAR(number(*value.find("seconds"), "forward"), 2, 1e-9);
  EXPECT_NEAR(number(*value.find("communication"), "seconds"), 0.75, 1e-9);
}

TEST(StepTimes, are_told_by_a_record) {
  FlightRecord record(0, 1);
  StepTimes times;
  for (int64_t step = 1; step <= 2; ++step) {
    record.at_step(step);
    record.at(FlightDoing::forward, 0);
    const uint64_t serial = record.begin(record.group("dp@0"), {FlightOp::all_gather, step, 8, -1, -1});
    record.pending(serial), record.waiting(serial), record.done(serial);
    record.at(FlightDoing::outside);
    std::thread([&] {  // another thread of the rank, such as the one that saves
      record.done(record.begin(0, {FlightOp::barrier, 1, 0, -1, -1}));
    })
        .join();
  }
  const Value value = times.to_value();
  EXPECT_EQ(value.find("steps")->as_int(), 1);
  const double in_calls = number(*value.find("communication"), "seconds");
  EXPECT_GT(in_calls, 0);
  EXPECT_LE(in_calls, number(*value.find("seconds"), "forward"));
  EXPECT_EQ(value.find("communication")->find("by")->find("barrier"), nullptr);
}

}  // namespace
}  // namespace drivetrain
