// Names of dtypes in torch.save files.
#pragma once

#include <ATen/core/Tensor.h>

namespace drivetrain::torch_files {

struct DtypeName {
  const char* storage;  // class of the storage in module torch; "": only untyped ones
  const char* dtype;    // torch.<name>
  at::ScalarType type;
};

inline constexpr DtypeName kDtypes[] = {
    {"FloatStorage", "float32", at::kFloat},   {"DoubleStorage", "float64", at::kDouble},
    {"HalfStorage", "float16", at::kHalf},     {"BFloat16Storage", "bfloat16", at::kBFloat16},
    {"LongStorage", "int64", at::kLong},       {"IntStorage", "int32", at::kInt},
    {"ShortStorage", "int16", at::kShort},     {"CharStorage", "int8", at::kChar},
    {"ByteStorage", "uint8", at::kByte},       {"BoolStorage", "bool", at::kBool},
    {"", "float8_e4m3fn", at::kFloat8_e4m3fn}, {"", "float8_e5m2", at::kFloat8_e5m2}};

}  // namespace drivetrain::torch_files
