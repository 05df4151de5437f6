// One run of one cell: launched, watched, and read.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "study/cell_plan.h"
#include "study/energy.h"

namespace drivetrain::study {

struct CellRun {
  const CellPlan* plan = nullptr;
  std::string program, base, folder;  // the folder is there; the run's own is "run" in it
  double timeout_s = 600;
  int64_t memory_limit = 0;
  std::optional<int64_t> seed = {};                      // of the run; none: its config's
  std::set<std::string> figures = {};                    // of metrics.jsonl, which the ledger keeps too
  EnergyMeter* meter = nullptr;                          // null: no energy is measured
  std::function<void(double now_s, int64_t step)> tick;  // every 20 ms: seconds since its start, steps that are done
};

struct CellEnd {
  Value line;  // what the ledger keeps of it
  double wall_s = 0;
  bool disk_full = false;  // it ended by that, which is nothing that the cell did
};

// Throws Error(io) if it cannot be started.
CellEnd run_cell(const CellRun& run);

}  // namespace drivetrain::study
