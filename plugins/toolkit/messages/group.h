// A group of ranks over a carrier: checks what it is given, queues operations, hands out works. See lane.h for how they
// are moved and flows.h for how sums are made. Buffers are the caller's own. Ownership: a group shares its lane with
// its works. Thread: one call at a time. Errors: as Group.
#pragma once

#include <drivetrain/communicator.h>
#include <drivetrain/error.h>
#include <drivetrain/toolkit/communicator/call_check.h>

#include "lane.h"

namespace drivetrain::toolkit::messages {

Error misused(const std::string& plugin, const char* what);

class MessageGroup final : public Group {
 public:
  explicit MessageGroup(std::shared_ptr<Lane> lane) : lane_(std::move(lane)) {}

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
  CallCheck check() const { return {lane_->plugin().c_str(), lane_->label(), size(), rank(), at::kCPU}; }
  Error misused(const char* what) const { return messages::misused(lane_->plugin(), what); }
  OperationPtr begin(CallKind kind, at::ScalarType dtype, int64_t count, int64_t peer = -1);
  WorkPtr enter(OperationPtr operation, Flow flow);
  WorkPtr transfer(CallKind kind, at::Tensor t, int64_t peer);

  const std::shared_ptr<Lane> lane_;
  int64_t calls_ = 0;
  bool batching_ = false;
  OperationPtr batch_;  // the messages of an open batch; null: none yet
};

}  // namespace drivetrain::toolkit::messages
