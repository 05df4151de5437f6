// What a rank's memory is for, measured: every storage behind parameters, gradients, masters and optimizer state counts
// once, in the first of these classes that has it; the rest of what the allocators handed out at their peak is buffers.
//
// Memory that several ranks share counts in equal parts. On a device, buffers are the device's. Where the runtime's
// allocator was not installed, they are those in shared memory only.
#pragma once

#include "report/memory_report.h"
#include "run/run_state.h"

namespace drivetrain {

// Measures the memory of all ranks. `state`: the run's. Rank 0 gets one entry per rank, the others an empty list. Call
// between steps, on every rank: rank 0 waits in the run's store for the others. Once per store. Thread: main.
// Errors: Error(communication) with the key of the rank that did not come.
std::vector<MeasuredMemory> measure_memory(const Run& run, const RunState& state, const RankEnvironment& env,
                                           double timeout_s);

}  // namespace drivetrain
