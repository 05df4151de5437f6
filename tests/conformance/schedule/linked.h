// For tests of the schedule that is linked into them: how it is made, and the suite with what it says of its bubble.
#pragma once

#include <drivetrain/toolkit/pipeline/pipeline.h>
#include <drivetrain/toolkit/pipeline/timeline.h>

#include <drivetrain/testkit/schedule/suite.h>
#include "support/plugin_under_test.h"

namespace drivetrain::test {

// The plugin of this test's library, with `more` options ("group_size": 3, ...).
inline ScheduleMaker schedule_maker(const Host& host, const std::string& name, const std::string& more = "") {
  return [&host, name, more](int64_t stages, int64_t chunks) -> std::shared_ptr<Schedule> {
    std::string options = concat("{\"stages\": ", stages, more.empty() ? "" : ", ", more);
    if (chunks > 1) options += concat(", \"chunks\": ", chunks);
    return make_plugin<Schedule>(host, name, options + "}");
  };
}

inline std::optional<double> bubble_of_pipeline(const Schedule& schedule, int64_t micro_batches) {
  const auto* pipeline = dynamic_cast<const PipelineSchedule*>(&schedule);
  return pipeline && schedule.stages() > 1 ? pipeline->bubble(micro_batches) : std::nullopt;
}

inline void run_pipeline_suite(const ScheduleMaker& make, int64_t most_stages = kMostStages,
                               const std::vector<int64_t>& chunks = {1}) {
  run_schedule_suite(make, most_stages, chunks, bubble_of_pipeline);
}

}  // namespace drivetrain::test
