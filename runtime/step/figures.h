// What a step's ranks tell each other, in one collective, and what the host reads from the device, in one read: the
// step's only wait. Sums are in order of rank, so every rank gets the same bits. Main thread.
#pragma once

#include <vector>

#include <drivetrain/communicator.h>

#include "contract/device_runtime.h"
#include "flight/own_work.h"

namespace drivetrain {

// What runs on a rank beside its steps: a checkpoint that is being written. Ordered: ranks agree on the last one that
// any of them has.
enum class Beside { nothing, busy, failed };

// What a rank's micro-batches of a step held.
struct RowCounts {
  int64_t tokens = 0;                  // valid ones
  int64_t documents = 0, padding = 0;  // as in Batch, of rows whose first column this rank has
};

// What a rank tells all others: numbers of float64 alone.
struct RankFigures {
  double loss = 0, squares = 0;                      // the device's: what exchange() reads there
  double tokens = 0, documents = 0, padding = 0;     // RowCounts
  double memory = 0, reserved = 0, host_memory = 0;  // peaks in bytes, of the device and of the process
  double signal = 0;                                 // by which this rank was asked to stop; 0: it was not
  double beside = 0;                                 // a Beside
  double named = 0, names = 0;  // how many loss terms and figures its units reported, and a digest of their names
  double seconds = 0;           // since the start
  // What every rank has to say alike: ranks that do not would wait for each other in vain, or train other weights.
  double save_after = 0;     // the last step after which this rank found a save due; 0: none
  double save_policies = 0;  // a sum of powers of two: which of its policies said so
  double lr = 0, hyper = 0;  // of the last update: group 0's rate, and a digest of all numbers of all groups
  WorkSeconds work = {};     // its own in this step
};

// Over all ranks.
struct SharedFigures {
  double loss = 0;  // these two: sums over the ranks that share the gradient reduction
  RowCounts rows;
  double squares = 0;                                // as this rank's device has it: equal on all
  double memory = 0, reserved = 0, host_memory = 0;  // largest
  int signal = 0;                                    // largest
  Beside beside = Beside::nothing;                   // last
  int64_t named = 0;                                 // largest
  double seconds = 0;                                // rank 0's
  std::vector<RankFigures> ranks;                    // of every rank
};

class Figures {
 public:
  // Global ranks whose token counts, whose losses are added up: those that share the gradient reduction;
  // and with them those of all stages, of which one has losses. `runtime` may be null on the CPU.
  struct Sharers {
    std::vector<int64_t> tokens, losses;
  };
  Figures(GroupPtr world, Sharers sharers, const at::Device& device, DeviceRuntime* runtime);

  // Float64 scalars on the device that the step writes and exchange() reads: this rank's loss sum, the gradient's sum
  // of squares.
  const at::Tensor& loss() const { return loss_; }
  const at::Tensor& squares() const { return squares_; }

  // How many ranks share the layers: each has the same loss.
  int64_t copies() const { return world_->size() / static_cast<int64_t>(sharers_.losses.size()); }

  // `mine`: without what the device has. Collective. Waits for the device.
  SharedFigures exchange(RankFigures mine);

 private:
  std::vector<RankFigures> read(RankFigures mine);

  const GroupPtr world_;
  const Sharers sharers_;
  at::Tensor buffer_, loss_, squares_;
  at::Tensor known_;  // what the host adds, on the host
  at::Tensor all_;    // of all ranks; undefined alone
};

}  // namespace drivetrain
