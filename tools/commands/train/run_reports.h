// What a run says of itself: in the log, to the monitors and in its folder. Main thread, rank 0 unless said otherwise.
#pragma once

#include <vector>

#include "report/memory_measure.h"
#include "run/run.h"
#include "train/train_run.h"

namespace drivetrain {

// Before the first step: the plan's headline, dtypes, memory and notes, and where it differs from the run that its
// config is from.
void announce(const TrainRequest& request, const Run& run, const Value& facts, const PlannedMemory& memory);

// The data of "run_begin". `first_step`: 1, or the one after the checkpoint's.
Value run_begin_data(const TrainRequest& request, const Run& run, int64_t first_step);

// Planned beside measured; the ranks one by one in the log file alone. Returns what the run's folder keeps.
Value report_memory(const Run& run, const PlannedMemory& planned, const std::vector<MeasuredMemory>& ranks);

// Where the steps of every rank spent their time, into the run's folder. `ranks`: on other ranks than 0 none, and
// nothing is written.
void report_times(const Run& run, const std::vector<Value>& ranks);

// The data of "run_end".
Value run_end_data(const TrainOutcome& outcome, Value memory);

}  // namespace drivetrain
