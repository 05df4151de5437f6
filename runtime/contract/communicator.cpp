#include <drivetrain/communicator.h>
#include <drivetrain/error.h>

#include <ATen/ops/empty.h>

#include <deque>

namespace drivetrain {
namespace {

class CompletedWork final : public Work {
 public:
  void wait() override {}
};

// Stands in for every absent axis of the mesh, on the run's device.
class LoopbackGroup final : public Group {
 public:
  LoopbackGroup(int64_t rank, const at::Device& device, std::string label)
      : ranks_{rank}, device_(device), label_(std::move(label)) {}

  int64_t rank() const override { return 0; }
  const std::vector<int64_t>& ranks() const override { return ranks_; }
  const std::string& label() const override { return label_; }

  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override {
    return at::empty({numel}, at::TensorOptions().dtype(dtype).device(device_));
  }
  WorkPtr all_reduce(at::Tensor) override { return completed_work(); }
  WorkPtr all_gather(at::Tensor out, at::Tensor in) override { return copied("all_gather", out, in); }
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in) override { return copied("reduce_scatter", out, in); }
  WorkPtr all_to_all(at::Tensor out, at::Tensor in) override { return copied("all_to_all", out, in); }
  WorkPtr all_to_all(at::Tensor out, at::Tensor in, const std::vector<int64_t>& received,
                     const std::vector<int64_t>& sent) override {
    if (sent.size() != 1 || sent != received || sent[0] != in.numel())
      refuse("all_to_all", concat("wanted one count of ", in.numel(), " elements sent and received, found ",
                                  sent.size(), " and ", received.size(), " counts, ", sent.empty() ? 0 : sent[0],
                                  " sent, ", received.empty() ? 0 : received[0], " received"));
    return copied("all_to_all", out, in);
  }
  WorkPtr broadcast(at::Tensor, int64_t root) override {
    check_index("broadcast", root);
    return completed_work();
  }

  WorkPtr send(at::Tensor t, int64_t to) override {
    check_index("send", to);
    sent_.push_back(std::move(t));
    return match();
  }
  WorkPtr recv(at::Tensor t, int64_t from) override {
    check_index("recv", from);
    received_.push_back(std::move(t));
    return match();
  }
  void batch_begin() override {}
  void batch_end() override {
    if (!received_.empty()) refuse("recv", "this rank sent itself nothing, and no other rank is in the group");
  }
  void barrier() override {}

 private:
  [[noreturn]] void refuse(const char* call, const std::string& problem) const {
    throw fail(ErrorCode::config, call, " in group \"", label_, "\" of rank ", ranks_[0], " alone: ", problem);
  }
  void check_index(const char* call, int64_t index) const {
    if (index != 0) refuse(call, concat("wanted index 0, found ", index));
  }

  // In place where both are the same memory.
  WorkPtr copied(const char* call, at::Tensor out, const at::Tensor& in) const {
    if (out.numel() != in.numel() || out.scalar_type() != in.scalar_type())
      refuse(call, concat("wanted as many elements out as in, of one dtype; found ", out.numel(), " ",
                          c10::toString(out.scalar_type()), " and ", in.numel(), " ", c10::toString(in.scalar_type())));
    if (out.const_data_ptr() != in.const_data_ptr()) out.copy_(in.view(out.sizes()), /*non_blocking=*/true);
    return completed_work();
  }

  WorkPtr match() {
    for (; !sent_.empty() && !received_.empty(); sent_.pop_front(), received_.pop_front())
      copied("recv", received_.front(), sent_.front());
    return completed_work();
  }

  const std::vector<int64_t> ranks_;
  const at::Device device_;
  const std::string label_;
  std::deque<at::Tensor> sent_, received_;  // not matched yet
};

}  // namespace

Work::~Work() = default;

WorkPtr completed_work() {
  static const WorkPtr work = std::make_shared<CompletedWork>();
  return work;
}

Group::~Group() = default;
at::Tensor Group::allocate_once(int64_t, at::ScalarType) { return {}; }

GroupPtr loopback_group(int64_t rank, const at::Device& device, std::string label) {
  return std::make_shared<LoopbackGroup>(rank, device, std::move(label));
}

Communicator::~Communicator() = default;

}  // namespace drivetrain
