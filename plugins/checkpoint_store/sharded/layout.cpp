#include "layout.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <drivetrain/toolkit/text.h>

namespace drivetrain::sharded {
namespace {

using Scalar = at::ScalarType;

constexpr std::array<StoredDtype, 19> kDtypes{{
    {"U64", Scalar::UInt64, 0},
    {"I64", Scalar::Long, 1},
    {"F64", Scalar::Double, 2},
    {"C64", Scalar::ComplexFloat, 3},
    {"F32", Scalar::Float, 4},
    {"U32", Scalar::UInt32, 5},
    {"I32", Scalar::Int, 6},
    {"BF16", Scalar::BFloat16, 7},
    {"F16", Scalar::Half, 8},
    {"U16", Scalar::UInt16, 9},
    {"I16", Scalar::Short, 10},
    {"F8_E5M2FNUZ", Scalar::Float8_e5m2fnuz, 11},
    {"F8_E4M3FNUZ", Scalar::Float8_e4m3fnuz, 12},
    {"F8_E8M0", Scalar::Float8_e8m0fnu, 13},
    {"F8_E4M3", Scalar::Float8_e4m3fn, 14},
    {"F8_E5M2", Scalar::Float8_e5m2, 15},
    {"I8", Scalar::Char, 16},
    {"U8", Scalar::Byte, 17},
    {"BOOL", Scalar::Bool, 18},
}};

template <class Fits>
const StoredDtype* find(const Fits& fits) {
  const auto found = std::find_if(kDtypes.begin(), kDtypes.end(), fits);
  return found == kDtypes.end() ? nullptr : &*found;
}

}  // namespace

std::string data_name(int64_t rank) { return formatted("rank-%05lld.safetensors", static_cast<long long>(rank)); }

std::string index_name(int64_t rank) { return formatted("rank-%05lld.index.json", static_cast<long long>(rank)); }

bool is_tag(const std::string& tag) {
  return !tag.empty() && tag[0] != '.' && tag.size() <= 200 && std::all_of(tag.begin(), tag.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
}

void check_tag(const std::string& tag) {
  if (!is_tag(tag))
    throw fail(ErrorCode::checkpoint, "\"", tag.substr(0, 200), "\" is no tag of a checkpoint\n   ",
               "a tag has letters, digits, \"-\", \"_\" and \".\", and does not begin with \".\"");
}

const StoredDtype* find_dtype(at::ScalarType type) {
  return find([&](const StoredDtype& d) { return d.type == type; });
}

const StoredDtype* find_dtype(std::string_view name) {
  return find([&](const StoredDtype& d) { return d.name == name; });
}

}  // namespace drivetrain::sharded
