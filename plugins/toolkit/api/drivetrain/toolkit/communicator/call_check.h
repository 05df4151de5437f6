// Refuses what a group cannot take, with Error(config) that names communicator, call and group. A refused call is none:
// the ranks still stand at the same place. Thread: any.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include <drivetrain/toolkit/communicator/call.h>

namespace drivetrain::toolkit {

struct CallCheck {
  const char* plugin;        // "communicator/local"
  const std::string& group;  // its label
  int64_t size, me;          // ranks of the group, and this rank's index
  at::Device device;         // where tensors must lie

  // Defined, contiguous and on the device.
  void tensor(const char* call, const at::Tensor& t) const;
  // The same, and of a dtype that is summed.
  void summed(const char* call, const at::Tensor& t) const;
  // `slice` is one of `size` slices of `whole`: this rank's own one in the same memory, or memory apart.
  void slices(const char* call, const at::Tensor& whole, const at::Tensor& slice) const;
  // Both hold one slice per rank, in memory apart.
  void exchange(const char* call, const at::Tensor& out, const at::Tensor& in) const;
  // The same with a count per rank.
  void exchange(const char* call, const at::Tensor& out, const at::Tensor& in, const Counts& counts) const;
  // `how` stands before the index: "from", "with index".
  void index(const char* call, const char* how, int64_t index) const;

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const char* call, const Parts&... problem) const;
  void pair(const char* call, const at::Tensor& a, const at::Tensor& b) const;
  void apart(const char* call, const at::Tensor& out, const at::Tensor& in) const;
  void counts_fit(const char* call, const char* verb, const std::vector<int64_t>& counts, const at::Tensor& t) const;
};

}  // namespace drivetrain::toolkit
