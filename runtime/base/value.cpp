// Access to a Value. Errors carry the value's position and say what was there instead.
#include <algorithm>
#include <cmath>

#include "base/value_error.h"

namespace drivetrain {
namespace {

[[noreturn]] void wrong_type(const Value& value, const char* wanted) {
  throw ValueError(value.where, concat("expected ", wanted, ", found ", describe(value)));
}

auto find_member(const Value::Object& members, const std::string& key) {
  return std::find_if(members.begin(), members.end(), [&](const Value::Member& m) { return m.key == key; });
}

}  // namespace

Value::Value(Object o) : data_(std::move(o)) {}

Value Value::object() { return Value(Object{}); }

const char* Value::type_name() const {
  static const char* const names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
  return names[data_.index()];
}

bool Value::as_bool() const {
  if (!is_bool()) wrong_type(*this, "boolean");
  return std::get<bool>(data_);
}

int64_t Value::as_int() const {
  if (is_int()) return std::get<int64_t>(data_);
  if (!is_number()) wrong_type(*this, "integer");
  const double x = std::get<double>(data_);
  if (x != std::floor(x)) wrong_type(*this, "integer");
  // 2^63 is exact in a double; the largest int64_t is not.
  if (!(x >= -0x1p63 && x < 0x1p63)) throw ValueError(where, concat(to_json(), " is out of range for an integer"));
  return static_cast<int64_t>(x);
}

double Value::as_double() const {
  if (is_int()) return static_cast<double>(std::get<int64_t>(data_));
  if (!is_number()) wrong_type(*this, "number");
  return std::get<double>(data_);
}

const std::string& Value::as_string() const {
  if (!is_string()) wrong_type(*this, "string");
  return std::get<std::string>(data_);
}

const Value::Array& Value::items() const {
  if (!is_array()) wrong_type(*this, "array");
  return std::get<Array>(data_);
}

Value::Array& Value::items() {
  if (!is_array()) wrong_type(*this, "array");
  return std::get<Array>(data_);
}

const Value::Object& Value::members() const {
  if (!is_object()) wrong_type(*this, "object");
  return std::get<Object>(data_);
}

Value::Object& Value::members() {
  if (!is_object()) wrong_type(*this, "object");
  return std::get<Object>(data_);
}

const Value* Value::find(const std::string& key) const {
  if (!is_object()) return nullptr;
  const auto member = find_member(members(), key);
  return member == members().end() ? nullptr : &member->value;
}

Value& Value::set(const std::string& key, Value value) {
  if (is_null()) data_ = Object{};
  if (const Value* old = find(key)) {
    Value& slot = const_cast<Value&>(*old);
    slot = std::move(value);
    return slot;
  }
  members().push_back({key, std::move(value)});
  return members().back().value;
}

bool Value::erase(const std::string& key) {
  if (!find(key)) return false;
  members().erase(find_member(members(), key));
  return true;
}

bool Value::operator==(const Value& other) const { return data_ == other.data_; }

}  // namespace drivetrain
