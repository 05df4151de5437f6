// DeepSpeed's recorded rates for the schedules it knows, and options that schedules with a warm-up share.
#pragma once

#include <gtest/gtest.h>

#include <set>

#include <drivetrain/testkit/lr_schedule/suite.h>
#include "support/plugin_under_test.h"

namespace drivetrain::test {

// The suite, and that what the schedule does not set stays the base's.
inline void check_pure_function(LrSchedule& schedule) {
  run_lr_schedule_suite(schedule);
  const Hyper base{0.002, 0.25, 0.75}, now = schedule.at({}, base);
  EXPECT_EQ(now.weight_decay, base.weight_decay);
  EXPECT_EQ(now.momentum, base.momentum);
}

// All recordings of DeepSpeed's `type`. Returns how many there were; every type of the file must be known here.
inline int run_golden_schedules(const Host& host, const std::string& plugin, const std::string& type) {
  const std::set<std::string> known = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest"};
  const std::set<std::string> without_plugin = {"OneCycle", "LRRangeTest"};  // in this version
  EXPECT_FALSE(without_plugin.contains(type));
  const Value golden = read_json_file(DRIVETRAIN_GOLDEN_DIR "/schedules.json");
  const Hyper base{golden.find("optimizer_lr")->as_double(), 0, 0};
  const double tolerance = golden.find("lr_rel_tolerance")->as_double();
  int found = 0;
  for (const Value::Member& recorded : golden.find("schedules")->members()) {
    const std::string& recorded_type = recorded.value.find("type")->as_string();
    EXPECT_TRUE(known.contains(recorded_type)) << recorded_type;
    if (recorded_type != type) continue;
    SCOPED_TRACE(recorded.key);
    const auto schedule = make_plugin_from<LrSchedule>(host, plugin, *recorded.value.find("params"));
    check_pure_function(*schedule);
    const auto& rates = recorded.value.find("lr")->items();
    for (size_t i = 0; i < rates.size(); ++i) {
      const double wanted = rates[i].as_double();
      EXPECT_NEAR(rate_at(*schedule, static_cast<int64_t>(i), base), wanted, tolerance * wanted) << "step " << i + 1;
    }
    ++found;
  }
  return found;
}

// Options all three warmup schedules share. `params` holds what the plugin requires.
inline void check_warmup_options(const Host& host, const std::string& plugin, const Value& params) {
  const auto refusal = [&](const char* key, const Value& value) {
    Value changed = params;
    changed.set(key, value);
    return error_of([&] { make_plugin_from<LrSchedule>(host, plugin, changed); });
  };
  EXPECT_EQ(refusal("last_batch_iteration", -1), "");
  EXPECT_NE(refusal("last_batch_iteration", 3)
                .find("last_batch_iteration is 3, but lr_schedule/" + plugin + " takes -1 to -1"),
            std::string::npos);
  EXPECT_EQ(refusal("warmup_type", "LINEAR"), "");
  EXPECT_NE(refusal("warmup_type", "cubic").find("warmup_type is \"cubic\""), std::string::npos);
  EXPECT_NE(refusal("warmup_num_steps", 0).find("takes at least 1"), std::string::npos);
  EXPECT_NE(refusal("warmup_num_steps", 2.5).find("expected integer, found"), std::string::npos);
}

inline void check_total_num_steps_is_required(const Host& host, const std::string& plugin) {
  const auto refusal = [&](const char* json) { return error_of([&] { make_plugin<LrSchedule>(host, plugin, json); }); };
  EXPECT_NE(refusal("{}").find("total_num_steps is missing: lr_schedule/" + plugin + " needs it"), std::string::npos)
      << refusal("{}");
  EXPECT_NE(refusal(R"({"total_num_steps": "auto"})").find("there is no rule for \"auto\" here"), std::string::npos);
}

}  // namespace drivetrain::test
