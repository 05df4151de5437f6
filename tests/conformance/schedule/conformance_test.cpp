// The conformance suite of schedule over every installed implementation, and a table of what each costs.
#include <iostream>

#include "conformance/schedule/suite.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

Host host;

bool takes(const std::string& name, const char* option) {
  return built_plugins().options(Schedule::kKind, name).find(option);
}

ScheduleMaker maker(const std::string& name) {
  return [name](int64_t stages, int64_t chunks) {
    Value options = Value::object();
    if (takes(name, "stages")) options.set("stages", stages);
    if (takes(name, "chunks")) options.set("chunks", chunks);
    Problems problems;
    const auto parsed = built_plugins().options(Schedule::kKind, name).parse(options, name, "params", problems);
    problems.throw_if_any();
    return built_plugins().create<Schedule>(name, parsed.get(), host.services);
  };
}

TEST(ScheduleConformance, every_installed_schedule_passes) {
  for (const std::string& name : built_plugins().names(Schedule::kKind)) {
    SCOPED_TRACE(name);
    const std::vector<int64_t> chunks = takes(name, "chunks") ? std::vector<int64_t>{2, 3, 4} : std::vector<int64_t>{1};
    run_schedule_suite(maker(name), takes(name, "stages") ? kMostStages : 1, chunks);
  }
}

// Idle time over work, and the most activations that a stage keeps, in micro-batches of a whole stage. Forward 1,
// backward 2.
TEST(ScheduleConformance, table_of_bubbles_and_activations) {
  std::cout << "| stages | micro-batches |";
  std::vector<std::pair<std::string, int64_t>> columns;
  for (const std::string& name : built_plugins().names(Schedule::kKind)) {
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
        const Timeline line = simulate(*maker(name)(stages, chunks), micro_batches, Pass::train);
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
