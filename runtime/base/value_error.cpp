#include "base/value_error.h"

#include "base/printable.h"
#include "base/suggest.h"

namespace drivetrain {

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

}  // namespace drivetrain
