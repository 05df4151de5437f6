#include <ATen/ops/empty.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include <drivetrain/device.h>
#include <drivetrain/error.h>

#include "group.h"

// Works are completed ones: everything is enqueued on the stream that would wait.
namespace drivetrain::nccl {

at::Tensor LoopGroup::allocate(int64_t numel, at::ScalarType dtype) {
  return at::empty({numel}, at::TensorOptions().dtype(dtype).device(device_));
}

void LoopGroup::move(const at::Tensor& out, const at::Tensor& in) {
  if (out.nbytes() == 0 || out.const_data_ptr() == in.const_data_ptr()) return;
  const auto stream = static_cast<cudaStream_t>(current_stream(device_));
  check_cuda(
      cudaMemcpyAsync(out.mutable_data_ptr(), in.const_data_ptr(), out.nbytes(), cudaMemcpyDeviceToDevice, stream),
      concat("group \"", label_, "\""), "cudaMemcpyAsync");
}

WorkPtr LoopGroup::copy(const char* call, const at::Tensor& out, const at::Tensor& in) {
  check().slices(call, out, in, true);
  move(out, in);
  return completed_work();
}

WorkPtr LoopGroup::all_reduce(at::Tensor t) {
  check().tensor("all_reduce", t, true);
  return completed_work();
}

WorkPtr LoopGroup::reduce_scatter(at::Tensor out, at::Tensor in) {
  check().tensor("reduce_scatter", in, true);
  return copy("reduce_scatter", out, in);
}

WorkPtr LoopGroup::broadcast(at::Tensor t, int64_t root) {
  check().tensor("broadcast", t);
  check().index("broadcast", "from", root);
  return completed_work();
}

WorkPtr LoopGroup::send(at::Tensor t, int64_t to) {
  check().tensor("send", t);
  check().index("send", "with index", to);
  sends_.push_back(std::move(t));
  match();
  return completed_work();
}

WorkPtr LoopGroup::recv(at::Tensor t, int64_t from) {
  check().tensor("recv", t);
  check().index("recv", "with index", from);
  recvs_.push_back(std::move(t));
  match();
  return completed_work();
}

void LoopGroup::match() {
  const size_t pairs = std::min(sends_.size(), recvs_.size());
  for (size_t i = 0; i < pairs; ++i) {
    check().slices("recv", recvs_[i], sends_[i], true);
    move(recvs_[i], sends_[i]);
  }
  sends_.erase(sends_.begin(), sends_.begin() + static_cast<std::ptrdiff_t>(pairs));
  recvs_.erase(recvs_.begin(), recvs_.begin() + static_cast<std::ptrdiff_t>(pairs));
}

void LoopGroup::batch_end() {
  if (!recvs_.empty())
    throw fail(ErrorCode::communication, "communicator/nccl: recv in group \"", label_,
               "\" from itself, and nothing was sent");
}

void LoopGroup::barrier() {
  check_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(current_stream(device_))),
             concat("barrier of group \"", label_, "\""), "cudaStreamSynchronize");
}

}  // namespace drivetrain::nccl
