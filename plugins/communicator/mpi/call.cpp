#include "call.h"

#include <c10/core/ScalarType.h>

#include <drivetrain/error.h>

namespace drivetrain::mpi {

std::optional<kernels::SumType> sum_type(at::ScalarType dtype) {
  using kernels::SumType;
  switch (dtype) {
    case at::kFloat:
      return SumType::f32;
    case at::kDouble:
      return SumType::f64;
    case at::kBFloat16:
      return SumType::bf16;
    case at::kHalf:
      return SumType::f16;
    case at::kByte:
    case at::kChar:
      return SumType::i8;
    case at::kShort:
    case at::kUInt16:
      return SumType::i16;
    case at::kInt:
    case at::kUInt32:
      return SumType::i32;
    case at::kLong:
    case at::kUInt64:
      return SumType::i64;
    default:
      return std::nullopt;
  }
}

int64_t Call::element_bytes() const {
  return static_cast<int64_t>(c10::elementSize(static_cast<at::ScalarType>(dtype)));
}

bool Call::fits(const Call& other) const {
  return kind == other.kind && dtype == other.dtype && count == other.count && peer == other.peer &&
         number == other.number;
}

const char* Call::name() const {
  static const char* const names[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                      "broadcast",  "barrier",    "send",           "recv"};
  return names[static_cast<int>(kind)];
}

std::string Call::amount() const { return concat(count, " ", c10::toString(static_cast<at::ScalarType>(dtype))); }

std::string Call::text() const {
  if (kind == CallKind::barrier) return name();
  std::string text = concat(name(), " of ", amount());
  if (kind == CallKind::send) return concat(text, " to index ", peer);
  if (kind == CallKind::recv || kind == CallKind::broadcast) return concat(text, " from index ", peer);
  if (kind != CallKind::all_reduce) text += " per rank";
  return text;
}

std::string Call::where(const std::string& label) const {
  if (kind < CallKind::send) return concat(name(), " #", number, " of group \"", label, "\"");
  return concat(text(), " in group \"", label, "\"");
}

bool Use::conflicts(const Use& other) const {
  const auto meet = [](const std::vector<Range>& some, const std::vector<Range>& others) {
    for (const Range& a : some)
      for (const Range& b : others)
        if (a.meets(b)) return true;
    return false;
  };
  return meet(written, other.written) || meet(written, other.read) || meet(read, other.written);
}

void CallCheck::tensor(const char* call, const at::Tensor& t, bool sums) const {
  const auto refuse = [&](const auto&... problem) {
    throw fail(ErrorCode::config, "communicator/mpi: ", call, " in group \"", label, "\": ", problem...);
  };
  if (!t.defined()) refuse("the tensor is undefined");
  if (!t.is_cpu()) refuse("wanted a tensor on the CPU, found one on ", t.device().str(), "; use communicator/nccl");
  if (!t.is_contiguous()) refuse("wanted a contiguous tensor, found strides ", t.strides());
  if (sums && !sum_type(t.scalar_type())) refuse("no sum over ", c10::toString(t.scalar_type()));
}

void CallCheck::slices(const char* call, const at::Tensor& whole, const at::Tensor& slice, bool equal) const {
  tensor(call, whole);
  tensor(call, slice);
  const std::string begin = concat("communicator/mpi: ", call, " in group \"", label, "\": ");
  if (whole.scalar_type() != slice.scalar_type())
    throw fail(ErrorCode::config, begin, "dtypes differ, ", c10::toString(whole.scalar_type()), " and ",
               c10::toString(slice.scalar_type()));
  const bool fits =
      equal ? whole.numel() == slice.numel() && whole.numel() % size == 0 : whole.numel() == slice.numel() * size;
  if (!fits)
    throw fail(ErrorCode::config, begin, whole.numel(), " elements do not fit ", slice.numel(), " elements ",
               equal ? "cut into" : "from each of", " ", size, " ranks");
}

void CallCheck::own_slice(const char* call, const at::Tensor& whole, const at::Tensor& slice) const {
  const Range all(whole), part(slice);
  if (!all.meets(part) || part.begin == all.begin + me * static_cast<int64_t>(slice.nbytes())) return;
  throw fail(ErrorCode::config, "communicator/mpi: ", call, " in group \"", label,
             "\": in and out overlap; wanted memory apart, or this rank's own slice (index ", me, ")");
}

void CallCheck::apart(const char* call, const at::Tensor& out, const at::Tensor& in) const {
  if (!Range(out).meets(Range(in))) return;
  throw fail(ErrorCode::config, "communicator/mpi: ", call, " in group \"", label,
             "\": in and out overlap; wanted memory apart");
}

void CallCheck::index(const char* call, const char* how, int64_t index) const {
  if (index < 0 || index >= size)
    throw fail(ErrorCode::config, "communicator/mpi: ", call, " in group \"", label, "\" ", how, " ", index,
               "; wanted an index from 0 to ", size - 1);
}

}  // namespace drivetrain::mpi
