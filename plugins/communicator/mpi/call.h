// What a group was asked to do, and the check of what it was given. Thread: any.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "kernels/collective/tree_sum.h"

namespace drivetrain::mpi {

// As communicator/local: integers of 8 to 64 bits, bfloat16, float16, float32, float64.
std::optional<kernels::SumType> sum_type(at::ScalarType dtype);

enum class CallKind : int32_t { all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, barrier, send, recv };

// Goes over the wire as it is.
struct Call {
  CallKind kind = CallKind::barrier;
  int32_t dtype = 0;   // at::ScalarType
  int64_t count = 0;   // elements, per slice where there are slices
  int64_t peer = -1;   // root, or the other end
  int64_t number = 0;  // from 1 within the group, not counting messages

  int64_t element_bytes() const;
  int64_t bytes() const { return count * element_bytes(); }
  bool fits(const Call& other) const;
  const char* name() const;
  std::string amount() const;                         // "10 Float"
  std::string text() const;                           // "all_reduce of 10 Float", for the ranks to compare
  std::string where(const std::string& label) const;  // `all_reduce #17 of group "dp"`
};

// Memory that calls use, to find those that must not run at the same time.
struct Range {
  const char* begin = nullptr;
  const char* end = nullptr;

  explicit Range(const at::Tensor& t)
      : begin(static_cast<const char*>(t.const_data_ptr())), end(begin == nullptr ? nullptr : begin + t.nbytes()) {}
  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};
struct Use {
  std::vector<Range> read, written;
  bool conflicts(const Use& other) const;
};

// Refuses with Error(config) what a group cannot take; the words are those of the other communicators.
struct CallCheck {
  const std::string& label;
  int64_t size, me;

  void tensor(const char* call, const at::Tensor& t, bool sums = false) const;
  // `equal`: both have the same number of elements, cut into slices; else `slice` is one of `whole`'s.
  void slices(const char* call, const at::Tensor& whole, const at::Tensor& slice, bool equal) const;
  // `slice` may be this rank's own one of `whole`, and otherwise shares no memory with it.
  void own_slice(const char* call, const at::Tensor& whole, const at::Tensor& slice) const;
  void apart(const char* call, const at::Tensor& out, const at::Tensor& in) const;
  void index(const char* call, const char* how, int64_t index) const;
};

}  // namespace drivetrain::mpi
