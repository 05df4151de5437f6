#include "base/text_values.h"

#include <charconv>
#include <cmath>

#include <drivetrain/error.h>

#include "base/printable.h"
#include "base/suggest.h"

namespace drivetrain {
namespace {

// The whole text as a number of this type.
template <class T>
std::optional<T> number_in(const std::string& text) {
  T number{};
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end) return {};
  return number;
}

std::optional<Value> as_switch(const Value& value) {
  if (value.is_string()) {
    const std::string word = lower_case(value.as_string());
    if (word == "true" || word == "false") return Value(word == "true");
  }
  if (value.is_int() && (value.as_int() == 0 || value.as_int() == 1)) return Value(value.as_int() == 1);
  return {};
}

std::optional<Value> as_number(const Value& value, bool whole) {
  if (!value.is_string()) return {};
  if (const auto integer = number_in<int64_t>(value.as_string())) return Value(*integer);
  const auto real = number_in<double>(value.as_string());
  return !whole && real && std::isfinite(*real) ? std::optional<Value>(Value(*real)) : std::nullopt;
}

}  // namespace

std::optional<Value> plain_value(const std::string& type, const Value& value) {
  std::optional<Value> plain;
  if (type.starts_with("boolean")) plain = as_switch(value);
  if (type.starts_with("integer")) plain = as_number(value, true);
  if (type.starts_with("number")) plain = as_number(value, false);
  if (plain) plain->where = value.where, plain->key_where = value.key_where;
  return plain;
}

std::string number_hint(const std::string& type, const Value& value) {
  if (!type.starts_with("integer") && !type.starts_with("number")) return {};
  if (!as_number(value, false)) return {};
  return concat("\n   write ", shown(value.as_string()), ", without quotation marks");
}

}  // namespace drivetrain
