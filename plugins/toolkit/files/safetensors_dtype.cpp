#include <drivetrain/toolkit/files/safetensors_dtype.h>

#include <algorithm>
#include <array>

namespace drivetrain {
namespace {

using Scalar = at::ScalarType;

// In the reference's order, which decides where the writer puts a tensor.
constexpr std::array<SafetensorsDtype, 22> kDtypes{{
    {"BOOL", 8, Scalar::Bool, 0},
    {"F4", 4, Scalar::Undefined, 1},
    {"F6_E2M3", 6, Scalar::Undefined, 2},
    {"F6_E3M2", 6, Scalar::Undefined, 3},
    {"U8", 8, Scalar::Byte, 4},
    {"I8", 8, Scalar::Char, 5},
    {"F8_E5M2", 8, Scalar::Float8_e5m2, 6},
    {"F8_E4M3", 8, Scalar::Float8_e4m3fn, 7},
    {"F8_E8M0", 8, Scalar::Float8_e8m0fnu, 8},
    {"F8_E4M3FNUZ", 8, Scalar::Float8_e4m3fnuz, 9},
    {"F8_E5M2FNUZ", 8, Scalar::Float8_e5m2fnuz, 10},
    {"I16", 16, Scalar::Short, 11},
    {"U16", 16, Scalar::UInt16, 12},
    {"F16", 16, Scalar::Half, 13},
    {"BF16", 16, Scalar::BFloat16, 14},
    {"I32", 32, Scalar::Int, 15},
    {"U32", 32, Scalar::UInt32, 16},
    {"F32", 32, Scalar::Float, 17},
    {"C64", 64, Scalar::ComplexFloat, 18},
    {"F64", 64, Scalar::Double, 19},
    {"I64", 64, Scalar::Long, 20},
    {"U64", 64, Scalar::UInt64, 21},
}};

}  // namespace

const SafetensorsDtype* find_safetensors_dtype(std::string_view name) {
  const auto found = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const auto& d) { return d.name == name; });
  return found == kDtypes.end() ? nullptr : &*found;
}

const SafetensorsDtype* find_safetensors_dtype(at::ScalarType type) {
  if (type == Scalar::Undefined) return nullptr;
  const auto found = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const auto& d) { return d.torch == type; });
  return found == kDtypes.end() ? nullptr : &*found;
}

}  // namespace drivetrain
