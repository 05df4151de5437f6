// Access to a Value. Errors carry the value's position and say what was there instead.
#include <algorithm>
#include <cmath>

#include "base/printable.h"
#include "base/suggest.h"
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

std::string describe(const Value& value) {
  constexpr size_t kShort = 60;
  const std::string type = value.type_name();
  if (value.is_null() || value.is_object() || value.is_array()) return type;
  std::string text = value.to_json();
  if (text.size() > kShort) {
    size_t end = kShort;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // whole characters
    text = text.substr(0, end) + "...";
  }
  return type + " " + one_line(text);
}

std::string short_json(const Value& value) { return shown(value.to_json()); }

std::string boolean_hint(const Value& value) {
  if (value.is_int() && (value.as_int() == 0 || value.as_int() == 1))
    return concat("\n   write ", value.as_int() ? "true" : "false");
  if (!value.is_string()) return "";
  const std::string meant = nearest(value.as_string(), {"true", "false", "on", "off", "yes", "no"});
  if (meant.empty()) return "";
  const bool on = meant == "true" || meant == "on" || meant == "yes";
  return concat("\n   write ", on ? "true" : "false", ", without quotation marks");
}

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
