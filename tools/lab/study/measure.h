// What a run of a cell gave: read from its folder and from how its launch ended.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "study/cell_plan.h"
#include "study/ledger.h"
#include "study/process.h"

namespace drivetrain::study {

// How a launch ended, as the ledger has it: {"state", "reason", "exit", "rank", "signal", "bytes"}.
// `console`: what it printed. `oom_killed`: the kernel ended a process for memory meanwhile.
Value end_of(const ProcessEnd& end, const std::string& console, bool oom_killed);

// {"step_s": [...], "loss": [...], "tokens": [...], "padding": [...], "figures": {NAME: {"step": [...], "value":
// [...]}} of `wanted` and of evaluations, "peak_memory": {CLASS: bytes of the largest
// rank}} of a run's folder; lists are empty where there is no metrics.jsonl. A last line that is cut is left out. Where
// the run says where its steps spent their time: "part_shares": {PART: mean over ranks}, "communication_share" and, of
// the rank that has most, "communication_share_most".
Value figures_of(const std::string& folder, const std::set<std::string>& wanted = {});

// Names of the figures in a run's metrics.jsonl that are numbers.
std::vector<std::string> metric_names(const std::string& folder);

// The measured steps, [first, last). `never`: the rule found no steady window, and the second half of the steps is
// taken; or there are too few steps for the rule.
struct Window {
  size_t first = 0, last = 0;
  bool never = false;
};
Window steady_window(const std::vector<double>& step_s, const Warmup& warmup);

// The figure of a run by its measured steps: their median; under the rule "first_steps" their mean.
double run_figure(const std::vector<double>& measured_s, const Warmup& warmup);

// Processes that the kernel ended for memory in this control group so far; 0 where nothing counts them.
int64_t oom_kills();

}  // namespace drivetrain::study
