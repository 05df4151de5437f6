// A group of ranks over NCCL.
//
// Without `deterministic` sums are NCCL's: fast, the same on every rank and in every run of the same shape on the same
// machines, but not in the fixed tree's order, so all_reduce and reduce_scatter may differ in the last bit. With it,
// and for types that NCCL cannot add, tree_collectives.h does them. Everything else moves bytes. barrier blocks the
// host until what was enqueued before it is done on all ranks, and cannot be captured. Errors: as Group. After an error
// in a call the run is aborted. Thread: one call at a time. Ownership: shares its Comm with its Works.
#pragma once

#include <drivetrain/communicator.h>
#include <drivetrain/toolkit/communicator/call_check.h>

#include <memory>
#include <string>
#include <vector>

#include "comm.h"

namespace drivetrain::nccl {

class NcclGroup final : public Group {
 public:
  NcclGroup(CommPtr comm, bool deterministic);
  ~NcclGroup() override;

  int64_t rank() const override { return comm_->me(); }
  const std::vector<int64_t>& ranks() const override { return comm_->ranks(); }
  const std::string& label() const override { return comm_->label(); }

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
  struct MarkWork;
  struct Transfer {
    bool sending;
    at::Tensor tensor;
    int64_t peer;
    std::shared_ptr<MarkWork> work;
  };

  toolkit::CallCheck check() const { return {"communicator/nccl", comm_->label(), size(), rank(), comm_->device()}; }
  Call next(CallKind kind, const at::Tensor& t, int64_t count, int64_t peer = -1);
  bool by_tree(at::ScalarType dtype) const;
  WorkPtr run(const Call& call, std::vector<at::Tensor> tensors, const Comm::Body& body, Counts counts = {});
  WorkPtr transfer(bool sending, at::Tensor t, int64_t peer);
  void run_transfers();

  const CommPtr comm_;
  const bool deterministic_;
  at::Tensor token_;  // what a barrier adds
  int64_t calls_ = 0;
  bool batching_ = false;
  std::vector<Transfer> transfers_;
};

}  // namespace drivetrain::nccl
