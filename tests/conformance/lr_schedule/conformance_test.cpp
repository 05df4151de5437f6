// The conformance suite of lr_schedule over every built implementation.
#include <gtest/gtest.h>

#include <map>

#include <drivetrain/lr_schedule.h>

#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {
namespace {

// Options of those that require some.
const std::map<std::string, Value> kOptions = {
    {"warmup_decay", parse_json(R"({"total_num_steps": 150, "warmup_num_steps": 20})", "test")},
    {"warmup_cosine", parse_json(R"({"total_num_steps": 150, "warmup_num_steps": 20})", "test")},
    {"wsd", parse_json(R"({"total_num_steps": 150, "warmup_num_steps": 20, "decay_num_steps": 40})", "test")},
};

TEST(LrScheduleConformance, every_built_schedule_passes) {
  for (const std::string& name : installed_plugins().names(LrSchedule::kKind)) {
    const auto options = kOptions.find(name);
    run_suite({LrSchedule::kKind, name, options == kOptions.end() ? Value::object() : options->second});
  }
}

}  // namespace
}  // namespace drivetrain::test
