// A group that hands every call on to another one: what a test watches a group with overrides the calls that it counts.
#pragma once

#include <utility>
#include <vector>

#include <drivetrain/communicator.h>

namespace drivetrain::test {

class PassingGroup : public Group {
 public:
  explicit PassingGroup(GroupPtr inner) : inner_(std::move(inner)) {}
  int64_t rank() const override { return inner_->rank(); }
  const std::vector<int64_t>& ranks() const override { return inner_->ranks(); }
  const std::string& label() const override { return inner_->label(); }
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override { return inner_->allocate(numel, dtype); }
  WorkPtr all_reduce(at::Tensor t) override { return inner_->all_reduce(t); }
  WorkPtr all_gather(at::Tensor out, at::Tensor in) override { return inner_->all_gather(out, in); }
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in) override { return inner_->reduce_scatter(out, in); }
  WorkPtr all_to_all(at::Tensor out, at::Tensor in) override { return inner_->all_to_all(out, in); }
  WorkPtr all_to_all(at::Tensor out, at::Tensor in, const std::vector<int64_t>& received,
                     const std::vector<int64_t>& sent) override {
    return inner_->all_to_all(out, in, received, sent);
  }
  WorkPtr broadcast(at::Tensor t, int64_t root) override { return inner_->broadcast(t, root); }
  WorkPtr send(at::Tensor t, int64_t to) override { return inner_->send(t, to); }
  WorkPtr recv(at::Tensor t, int64_t from) override { return inner_->recv(t, from); }
  void batch_begin() override { inner_->batch_begin(); }
  void batch_end() override { inner_->batch_end(); }
  void barrier() override { inner_->barrier(); }

 protected:
  const GroupPtr inner_;
};

}  // namespace drivetrain::test
