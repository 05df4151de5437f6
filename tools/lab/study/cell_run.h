// One run of one cell: launched, watched, and read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "study/cell_plan.h"
#include "study/energy.h"
#include "study/host_load.h"
#include "study/process.h"

namespace drivetrain::study {

struct CellRun {
  const CellPlan* plan = nullptr;
  std::string program, base, folder;  // the folder is there; the run's own is "run" in it
  double timeout_s = 600;
  int64_t memory_limit = 0;
  std::optional<int64_t> seed = {};           // of the run; none: its config's
  std::set<std::string> figures = {};         // of metrics.jsonl, which the ledger keeps too
  EnergyMeter* meter = nullptr;               // null: no energy is measured
  std::vector<int> cpus = {};                 // of its slot; empty: all
  std::vector<std::string> environment = {};  // NAME=VALUE beside the plan's
  std::string hosts = {};                     // the hostfile of its slot; "": the plan's
};

struct CellEnd {
  Value line;  // what the ledger keeps of it
  double wall_s = 0;
  bool disk_full = false;  // it ended by that, which is nothing that the cell did
};

class CellProcess {
 public:
  explicit CellProcess(const CellRun& run);  // throws Error(io) if it cannot be started
  ~CellProcess();

  std::optional<CellEnd> poll();  // every 20 ms or so; the end is told once
  double now_s() const;           // since its start
  int64_t steps() const;          // that are done

 private:
  class MetricsWatch;
  CellEnd read(const ProcessEnd& end);

  const CellRun run_;
  const int64_t kills_;
  std::unique_ptr<MetricsWatch> metrics_;
  LoadWatch load_;
  std::unique_ptr<Process> process_;
};

}  // namespace drivetrain::study
