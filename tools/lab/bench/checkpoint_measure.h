// What saving a run's state costs and how fast it goes: blocks of steps with a save beside them and without in turns,
// saves and loads of a run that stands still, and plain writes and reads of as many bytes. Every call on every rank.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "checkpoint/saver.h"
#include "run/run.h"

namespace drivetrain {

struct CheckpointTimes {
  uint64_t bytes = 0;                      // of the state, all ranks
  std::vector<double> without, with;       // seconds of a block of steps
  std::vector<double> stalls;              // seconds that training stood still for a save, most of any rank
  double peak_before = 0, peak_after = 0;  // of this rank's memory, bytes: before the first save, and after all of them
  double snapshot_bytes = 0;               // of this rank
  // Seconds, longest of any rank: the store's write with its commit, writes of as many bytes past the page cache and
  // through it, all to the disk; the store's load, and plain reads of as many bytes of its files into memory. Reads
  // come from the page cache.
  std::vector<double> write, direct, cached, load, read;
};

// Of a run that is built, in turns. `every`: steps of a block. `folder`: that this command has made, for files.
class CheckpointMeasure {
 public:
  CheckpointMeasure(Run& run, const RankEnvironment& env, std::string folder, int64_t warmup, int64_t every,
                    int64_t rounds);

  int64_t train_steps() const { return steps_of(warmup_, every_, rounds_); }
  static int64_t steps_of(int64_t warmup, int64_t every, int64_t rounds) { return warmup + 2 * every * rounds + 1; }

  // The times are whole on rank 0.
  CheckpointTimes measure();

 private:
  void train(Trainer& trainer);
  void stand_still(Trainer& trainer);
  double longest(double seconds);
  double together(const std::function<void()>& work);

  Run& run_;
  const RankEnvironment& env_;
  const std::string folder_;
  const int64_t warmup_, every_, rounds_;
  const GroupPtr world_;
  CheckpointTimes times_;
};

}  // namespace drivetrain
