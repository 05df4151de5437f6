// Checks the arguments of a call on a group. Throws Error(config) that names communicator, call and group. A call that
// is refused does not count: the rank may make the correct call instead. Thread: any.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include <drivetrain/toolkit/communicator/call.h>

namespace drivetrain::toolkit {

struct CallCheck {
  const char* plugin;        // "communicator/local"
  const std::string& group;  // the group's label
  int64_t size, me;          // ranks of the group, and this rank's index
  at::Device device;         // where tensors must lie

  // `t` is defined, contiguous and on the device.
  void tensor(const char* call, const at::Tensor& t) const;
  // The same, and its dtype can be summed.
  void summed(const char* call, const at::Tensor& t) const;
  // `slice` has the size of one of `size` slices of `whole`. It is this rank's slice of it, or does not overlap it.
  void slices(const char* call, const at::Tensor& whole, const at::Tensor& slice) const;
  // Both hold one slice per rank and do not overlap.
  void exchange(const char* call, const at::Tensor& out, const at::Tensor& in) const;
  // The same with one count per rank.
  void exchange(const char* call, const at::Tensor& out, const at::Tensor& in, const Counts& counts) const;
  // `index` is a rank of the group. `how`: the words before the index in the message: "from", "with index".
  void index(const char* call, const char* how, int64_t index) const;

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const char* call, const Parts&... problem) const;
  void pair(const char* call, const at::Tensor& a, const at::Tensor& b) const;
  void apart(const char* call, const at::Tensor& out, const at::Tensor& in) const;
  void counts_fit(const char* call, const char* verb, const std::vector<int64_t>& counts, const at::Tensor& t) const;
};

}  // namespace drivetrain::toolkit
