// A group of ranks over MPI: checks what it is given, queues operations, hands out works. See lane.h for how they are
// moved and collectives.h for how sums are made. Buffers are the caller's own: MPI gains nothing from memory of its own
// here. Ownership: a group shares its lane with its works. Thread: one call at a time. Errors: as Group.
#pragma once

#include <drivetrain/communicator.h>
#include <drivetrain/toolkit/communicator/call_check.h>

#include "lane.h"

namespace drivetrain::mpi {

class MpiGroup final : public Group {
 public:
  explicit MpiGroup(std::shared_ptr<Lane> lane) : lane_(std::move(lane)) {}

  int64_t rank() const override { return lane_->wire().me; }
  const std::vector<int64_t>& ranks() const override { return lane_->ranks(); }
  const std::string& label() const override { return lane_->label(); }

  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override;
  WorkPtr all_reduce(at::Tensor t) override;
  WorkPtr all_gather(at::Tensor out, at::Tensor in) override;
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in) override;
  WorkPtr all_to_all(at::Tensor out, at::Tensor in) override;
  WorkPtr all_to_all(at::Tensor out, at::Tensor in, const std::vector<int64_t>& received,
                     const std::vector<int64_t>& sent) override;
  WorkPtr broadcast(at::Tensor t, int64_t root) override;
  WorkPtr send(at::Tensor t, int64_t to) override;
  WorkPtr recv(at::Tensor t, int64_t from) override;
  void batch_begin() override;
  void batch_end() override;
  void barrier() override;

 private:
  struct LaneWork;
  toolkit::CallCheck check() const { return {"communicator/mpi", lane_->label(), size(), rank(), at::kCPU}; }
  OperationPtr begin(CallKind kind, at::ScalarType dtype, int64_t count, int64_t peer = -1);
  WorkPtr enter(OperationPtr operation, Flow flow);
  WorkPtr transfer(CallKind kind, at::Tensor t, int64_t peer);

  const std::shared_ptr<Lane> lane_;
  int64_t calls_ = 0;
  bool batching_ = false;
  OperationPtr batch_;  // the messages of an open batch; null: none yet
};

}  // namespace drivetrain::mpi
