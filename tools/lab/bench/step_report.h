// What `drivetrain bench step` measured, and what it says of it.
#pragma once

#include <vector>

#include "bench/bench.h"
#include "bench/phase_watch.h"
#include "bench/products.h"
#include "bench/step_limit.h"
#include "plan/prepared_run.h"

namespace drivetrain {

struct StepMeasure {
  int64_t warmup = 0, steps = 0;     // the timed ones follow the warm-up
  std::vector<Value> rows;           // figures of every step, as metrics.jsonl has them
  std::vector<PhaseSeconds> phases;  // of the watched ones, the last
  // Of every rank, rank 0's first; on other ranks none.
  std::vector<double> peaks;                  // of memory
  std::vector<PhaseSeconds> phases_of_ranks;  // medians

  bool timed(size_t index) const {
    const auto i = static_cast<int64_t>(index);
    return i >= warmup && i < warmup + steps;
  }
  PhaseSeconds median_phases() const;
};

// All figures are rank 0's or agreed by all ranks.
void report_steps(const PreparedRun& run, const StepMeasure& measure, const Products& products, const StepLimit& limit,
                  BenchReport& report);

}  // namespace drivetrain
