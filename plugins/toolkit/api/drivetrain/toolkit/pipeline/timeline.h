// What a schedule's programs do to each other, without tensors: when each instruction runs if pieces take given times
// and messages none, and whether the programs of all stages fit together at all. Pure; any thread.
#pragma once

#include <vector>

#include <drivetrain/toolkit/pipeline/program_check.h>
#include <drivetrain/toolkit/pipeline/schedule_graph.h>

namespace drivetrain {

// Backward as long as two forwards, its halves alike.
// `costs` of the pieces in chain order, in any unit: a forward takes 1 on average.
std::vector<PieceTime> piece_times(const std::vector<double>& costs);

struct Timeline {
  struct Entry {
    Instr instr;
    double start = 0, end = 0;
  };
  struct Stage {
    std::vector<Entry> entries;  // in the order of the program
    double busy = 0;             // time in computations
    int64_t slots = 0;           // as the schedule says
    int64_t peak_in_flight = 0;  // activations alive at once, of a micro-batch in a chunk each
  };
  std::vector<Stage> stages;
  int64_t chunks = 1, micro_batches = 0;
  double makespan = 0;
  // Idle time of all stages until the last one is done, over the time they work. On equal stages makespan / ideal - 1.
  double bubble() const;
};

// Runs the programs of all stages. Sends take no time and wait for nobody; a receive is the next of its neighbour's
// sends that fits. `times`: of every piece, in chain order; empty: all alike. Error(internal) with everything that is
// wrong: a deadlock with who waits for what; a computation that is missing, double or out of order; messages that do
// not pair up; slots that clash, or that slots() does not count.
Timeline simulate(const Schedule& schedule, int64_t micro_batches, Pass pass, const std::vector<PieceTime>& times = {});

}  // namespace drivetrain
