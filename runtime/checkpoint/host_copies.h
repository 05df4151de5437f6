// Copies of a rank's state in memory of the host, which the next save uses again.
//
// What only the update of a step changes (parameters, the optimizer's state) need not be copied while training stands
// still: it is copied by the thread that writes the checkpoint, while the next step computes its gradients. Training
// waits before its update if that is not done.
#pragma once

#include <atomic>
#include <vector>

#include <drivetrain/checkpoint_store.h>

#include "checkpoint/held_state.h"
#include "internal.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL HostCopies {
 public:
  // The slices of the parts that `writes` selects. Their data are copied when the call returns, but for what may wait
  // where `may_wait`: until `copy_rest` returns, their memory must not change. Main thread, between two steps.
  std::vector<StateSlice> begin(const std::vector<HeldPart>& parts, const std::vector<bool>& writes, bool may_wait);
  // Once after each `begin` where something may wait. Any thread.
  void copy_rest() noexcept;
  // Returns when `copy_rest` has returned. Main thread.
  void wait() const;

 private:
  struct Copy {
    at::Tensor from, into;
  };
  at::Tensor& memory(size_t number, const at::Tensor& view);

  std::vector<at::Tensor> memory_;  // of the slices, in their order; used again
  std::vector<Copy> rest_;
  std::atomic<bool> done_ = true;
};

}  // namespace drivetrain
