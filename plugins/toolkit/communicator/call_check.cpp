#include <drivetrain/toolkit/communicator/call_check.h>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/communicator/memory_use.h>
#include <drivetrain/toolkit/communicator/sum_type.h>

namespace drivetrain::toolkit {
namespace {

std::string place(const at::Device& device) { return device.is_cpu() ? "the CPU" : device.str(); }

}  // namespace

template <class... Parts>
void CallCheck::refuse(const char* call, const Parts&... problem) const {
  throw fail(ErrorCode::config, plugin, ": ", call, " in group \"", group, "\": ", problem...);
}

void CallCheck::tensor(const char* call, const at::Tensor& t) const {
  if (!t.defined()) refuse(call, "the tensor is undefined");
  if (t.device() != device) refuse(call, "wanted a tensor on ", place(device), ", found one on ", place(t.device()));
  if (!t.is_contiguous()) refuse(call, "wanted a contiguous tensor, found strides ", t.strides());
}

void CallCheck::summed(const char* call, const at::Tensor& t) const {
  tensor(call, t);
  if (!sum_type(t.scalar_type())) refuse(call, "no sum over ", c10::toString(t.scalar_type()));
}

void CallCheck::pair(const char* call, const at::Tensor& a, const at::Tensor& b) const {
  tensor(call, a);
  tensor(call, b);
  if (a.scalar_type() != b.scalar_type())
    refuse(call, "dtypes differ, ", c10::toString(a.scalar_type()), " and ", c10::toString(b.scalar_type()));
}

void CallCheck::apart(const char* call, const at::Tensor& out, const at::Tensor& in) const {
  if (Range(out).meets(Range(in))) refuse(call, "in and out overlap; wanted memory apart");
}

void CallCheck::slices(const char* call, const at::Tensor& whole, const at::Tensor& slice) const {
  pair(call, whole, slice);
  if (whole.numel() != slice.numel() * size)
    refuse(call, whole.numel(), " elements do not fit ", slice.numel(), " elements from each of ", size, " ranks");
  const Range all(whole), part(slice);
  if (!all.meets(part) || part.begin == all.begin + me * static_cast<int64_t>(slice.nbytes())) return;
  refuse(call, "in and out overlap; wanted memory apart, or as the smaller one exactly slice ", me,
         " of the other, this rank's own");
}

void CallCheck::exchange(const char* call, const at::Tensor& out, const at::Tensor& in) const {
  pair(call, out, in);
  if (out.numel() != in.numel() || out.numel() % size != 0)
    refuse(call, out.numel(), " elements do not fit ", in.numel(), " elements cut into ", size, " ranks");
  apart(call, out, in);
}

void CallCheck::exchange(const char* call, const at::Tensor& out, const at::Tensor& in, const Counts& counts) const {
  pair(call, out, in);
  counts_fit(call, "sent", counts.sent, in);
  counts_fit(call, "received", counts.received, out);
  const auto own = static_cast<size_t>(me);
  if (counts.sent[own] != counts.received[own])
    refuse(call, "this rank sends itself ", counts.sent[own], " elements and expects ", counts.received[own]);
  apart(call, out, in);
}

void CallCheck::counts_fit(const char* call, const char* verb, const std::vector<int64_t>& counts,
                           const at::Tensor& t) const {
  if (static_cast<int64_t>(counts.size()) != size)
    refuse(call, "wanted ", size, " counts of elements ", verb, ", one per rank; found ", counts.size());
  int64_t sum = 0;
  for (const int64_t count : counts) {
    if (count < 0) refuse(call, "a count of elements ", verb, " is ", count, "; wanted 0 or more");
    sum += count;
  }
  if (sum != t.numel())
    refuse(call, "the counts of elements ", verb, " add up to ", sum, ", the tensor has ", t.numel(), " elements");
}

void CallCheck::index(const char* call, const char* how, int64_t index) const {
  if (index < 0 || index >= size)
    throw fail(ErrorCode::config, plugin, ": ", call, " in group \"", group, "\" ", how, " ", index,
               "; wanted an index from 0 to ", size - 1);
}

}  // namespace drivetrain::toolkit
