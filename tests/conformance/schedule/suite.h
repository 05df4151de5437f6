// What every schedule must do, found out without tensors: programs of all stages that fit together, do every
// computation once and in order and keep to their slots, for any number of micro-batches, training and forward only;
// and a cut of any model.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/plan_record.h>
#include <drivetrain/schedule.h>

#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {

using ScheduleMaker = std::function<std::shared_ptr<Schedule>(int64_t stages, int64_t chunks)>;
// What a schedule says of its own idle time, over the time its stages work; nothing where it does not say.
using BubbleOf = std::function<std::optional<double>(const Schedule&, int64_t micro_batches)>;

constexpr int64_t kMostStages = 8, kMostMicroBatches = 32;

// The schedule of its kind that this subject names. Options "stages" and "chunks" are set where it has them.
ScheduleMaker schedule_maker(const Subject& subject);
// Whether the subject has an option of this name.
bool takes_option(const Subject& subject, const char* option);

// A stage's computations as the papers write them: "F0 F1 B0". Receives and the like are left out.
std::string computations_of(const Schedule& schedule, int64_t stage, int64_t micro_batches);
// What a schedule says in `plan` of a run of `accumulation` micro-batches.
PlanRecord planned(Schedule& schedule, int64_t accumulation, int64_t world_size = 8);
// Of several stages: one claim of the axis. Of one: nothing, and steps may be recorded.
void check_plan(const ScheduleMaker& make);

Suite schedule_suite();
// On schedules that a test makes.
void run_schedule_suite(const ScheduleMaker& make, int64_t most_stages = kMostStages,
                        const std::vector<int64_t>& chunks = {1}, const BubbleOf& bubble_of = {});

}  // namespace drivetrain::test
