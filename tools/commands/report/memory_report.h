// What a rank's memory is for: as the plugins planned it, as it was found in the end, and both in words.
//
// Bytes per parameter count all parameters of the model, also where a rank holds a share of them. Thread: main.
#pragma once

#include <string>
#include <vector>

#include "report/memory_plan.h"

namespace drivetrain {

struct MeasuredMemory : MemoryTable {  // buffers: everything else at its peak, activations too
  double states_on_host = 0;           // of a run on a device: what lies beside it
  double peak_memory = 0;              // of the process, see observe/memory.h
};

// One line each, the first one a heading. `sources`: who planned what, at the end of each line.
std::vector<std::string> planned_lines(const PlannedMemory& planned, int64_t parameters, bool sources);
// Where there are several stages, a line for each.
std::vector<std::string> stage_lines(const RunPlan& plan);
// Beside each other, the largest rank's figures counting.
std::vector<std::string> measured_lines(const PlannedMemory& planned, const std::vector<MeasuredMemory>& ranks,
                                        int64_t parameters);
// A line per rank.
std::vector<std::string> rank_lines(const std::vector<MeasuredMemory>& ranks);
// For the run's folder and monitors, in bytes: {"model_parameters": n, "planned": {...}, "ranks": [{...}, ...]}. Each
// rank has "planned" beside what was measured.
Value memory_value(const RunPlan& plan, const std::vector<MeasuredMemory>& ranks);

}  // namespace drivetrain
