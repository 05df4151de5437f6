// monitor/console: which lines stay, what they say.
#include <gtest/gtest.h>

#include <drivetrain/monitor.h>

#include "support/plugin_under_test.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

struct Console : ::testing::Test {
  Host host;
  std::unique_ptr<Monitor> monitor = make_plugin<Monitor>(host, "console");

  static Value object(std::initializer_list<Value::Member> members) { return Value(Value::Object(members)); }

  void begin(int64_t train_steps, int64_t steps_per_print) {
    monitor->on_event({"run_begin", 0, object({{"train_steps", train_steps}, {"steps_per_print", steps_per_print}})});
  }
  static Event event(int64_t n, double step_s = 0.5, int64_t tokens = 6150) {
    return {"step", n,
            object({{"step", n},
                    {"loss", 2.34549},
                    {"grad_norm", 0.9111},
                    {"lr", 3e-4},
                    {"tokens", int64_t{1}},  // labels that count: not what speed is about
                    {"tokens_per_s", static_cast<double>(tokens) / step_s},
                    {"step_s", step_s}})};
  }
};

TEST_F(Console, says_step_loss_norm_rate_speed_and_time_left) {
  begin(484, 0);
  monitor->on_event(event(100));
  ASSERT_EQ(host.log.lines.size(), 1u);
  EXPECT_EQ(host.log.lines[0], "step 100/484  loss 2.345  grad_norm 0.911  lr 3.0e-04  12.3k tokens/s  eta 3m12s");
  EXPECT_EQ(host.log.progress_lines, host.log.lines);
}

TEST_F(Console, shows_progress_every_step_and_keeps_lines_every_steps_per_print) {
  begin(25, 10);
  for (int64_t n = 1; n <= 25; ++n) monitor->on_event(event(n));
  EXPECT_EQ(host.log.progress_lines.size(), 25u);
  std::vector<std::string> kept;
  for (const std::string& line : host.log.lines) kept.push_back(line.substr(0, line.find("  ")));
  EXPECT_EQ(kept, (std::vector<std::string>{"step 1/25", "step 10/25", "step 20/25", "step 25/25"}));
  EXPECT_EQ(host.log.lines.back().find("eta"), std::string::npos);
}

TEST_F(Console, keeps_validation_losses_and_skipped_steps) {
  begin(100, 0);
  monitor->on_event(event(1));
  Event valid = event(2), skipped = event(3);
  valid.data.set("valid_loss", 2.5);
  skipped.data.set("skipped", true), skipped.data.set("loss_scale", 32768.0);
  for (const Event& e : {valid, skipped, event(4)}) monitor->on_event(e);
  ASSERT_EQ(host.log.lines.size(), 3u);
  EXPECT_NE(host.log.lines[1].find("  valid_loss 2.500  "), std::string::npos);
  EXPECT_NE(host.log.lines[2].find("  skipped  loss_scale 32768  "), std::string::npos);
}

TEST_F(Console, keeps_evaluations_of_sets_with_the_first_figure_of_each) {
  begin(100, 0);
  monitor->on_event(event(1));
  Event evaluated = event(2);
  for (const char* name : {"eval/hella/acc", "eval/hella/acc_stderr", "eval/wiki/loss", "eval/wiki/perplexity"})
    evaluated.data.set(name, 0.25);
  monitor->on_event(evaluated);
  ASSERT_EQ(host.log.lines.size(), 2u);
  EXPECT_NE(host.log.lines[1].find("  hella/acc 0.25  wiki/loss 0.25  "), std::string::npos) << host.log.lines[1];
  EXPECT_EQ(host.log.lines[1].find("stderr"), std::string::npos) << host.log.lines[1];
}

TEST_F(Console, the_first_step_does_not_spoil_the_estimate) {
  begin(1002, 1);
  monitor->on_event(event(1, 60));
  monitor->on_event(event(2, 0.009));
  EXPECT_EQ(host.log.lines[0].substr(host.log.lines[0].find("eta")), "eta 16h41m");
  EXPECT_EQ(host.log.lines[1].substr(host.log.lines[1].find("eta")), "eta 9s");
  EXPECT_NE(host.log.lines[1].find("683.3k tokens/s"), std::string::npos);
}

TEST_F(Console, speaks_without_knowing_the_length_of_the_run) {
  monitor->on_event({"run_begin", 0, Value::object()});
  monitor->on_event(event(3));
  EXPECT_EQ(host.log.lines.at(0).find("step 3  loss"), 0u);
}

}  // namespace
}  // namespace drivetrain
