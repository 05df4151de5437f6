#include <drivetrain/toolkit/communicator/sum_type.h>

namespace drivetrain::toolkit {

std::optional<SumType> sum_type(at::ScalarType dtype) {
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

}  // namespace drivetrain::toolkit
