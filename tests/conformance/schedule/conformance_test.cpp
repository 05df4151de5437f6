// The conformance suite of schedule over every installed implementation, and a table of what each costs.
#include <gtest/gtest.h>

#include <iostream>

#include <drivetrain/testkit/schedule/suite.h>
#include <drivetrain/toolkit/pipeline/timeline.h>
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

bool takes(const std::string& name, const char* option) { return takes_option({Schedule::kKind, name}, option); }

TEST(ScheduleConformance, every_installed_schedule_passes) {
  for (const std::string& name : installed_plugins().names(Schedule::kKind))
    run_suite({.kind = Schedule::kKind, .name = name, .train = train_by_threads});
}

// Idle time over work, and the most activations that a stage keeps, in micro-batches of a whole stage. Forward 1,
// backward 2.
TEST(ScheduleConformance, table_of_bubbles_and_activations) {
  std::cout << "| stages | micro-batches |";
  std::vector<std::pair<std::string, int64_t>> columns;
  for (const std::string& name : installed_plugins().names(Schedule::kKind)) {
    if (!takes(name, "stages")) continue;
    for (const int64_t chunks : takes(name, "chunks") ? std::vector<int64_t>{2, 4} : std::vector<int64_t>{1})
      columns.emplace_back(name, chunks);
  }
  for (const auto& [name, chunks] : columns)
    std::cout << " " << name << (chunks > 1 ? concat(" x ", chunks) : std::string()) << " |";
  std::cout << "\n";
  for (const int64_t stages : {2, 4, 8})
    for (const int64_t micro_batches : {stages / 2, stages, 2 * stages, 4 * stages, 4 * stages + 1}) {
      std::cout << "| " << stages << " | " << micro_batches << " |";
      for (const auto& [name, chunks] : columns) {
        const Timeline line =
            simulate(*schedule_maker({Schedule::kKind, name})(stages, chunks), micro_batches, Pass::train);
        int64_t kept = 0;
        for (const Timeline::Stage& stage : line.stages) kept = std::max(kept, stage.peak_in_flight);
        char text[64];
        std::snprintf(text, sizeof text, " %.1f %%, %.4g |", 100 * line.bubble(),
                      static_cast<double>(kept) / static_cast<double>(chunks));
        std::cout << text;
        EXPECT_LE(line.bubble(), static_cast<double>(stages - 1) / static_cast<double>(micro_batches) + 1e-12) << name;
      }
      std::cout << "\n";
    }
}

}  // namespace
}  // namespace drivetrain::test
