#include "call.h"

#include <iterator>

#include <drivetrain/error.h>

namespace drivetrain::local {

const char* name_of(CallKind kind) {
  static const char* const names[] = {"nothing",    "make_group", "all_reduce", "all_gather",    "reduce_scatter",
                                      "all_to_all", "broadcast",  "barrier",    "allocate_once", "send or recv"};
  const auto index = static_cast<uint32_t>(kind);  // may have been read from a peer's memory
  return index < std::size(names) ? names[index] : "an unknown call";
}

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

bool Call::fits(const Call& other) const {
  return kind == other.kind && dtype == other.dtype && count == other.count && root == other.root;
}

std::string Call::text() const {
  std::string text = name_of(kind);
  if (kind == CallKind::barrier || kind == CallKind::join) return text;
  text += concat(" of ", count, " ", c10::toString(static_cast<at::ScalarType>(dtype)));
  if (kind == CallKind::all_gather || kind == CallKind::reduce_scatter || kind == CallKind::all_to_all)
    text += " per rank";
  return root < 0 ? text : concat(text, " from index ", root);
}

std::string Call::where(const std::string& group) const {
  if (kind == CallKind::join) return concat(name_of(kind), " of group \"", group, "\"");
  return concat(name_of(kind), " #", number - 1, " of group \"", group, "\"");
}

}  // namespace drivetrain::local
