// Values in quotation marks, as templates that a script filled in have them, and 0 and 1 as switches. DeepSpeed takes
// them in its typed sections, and nowhere else. Pure functions; any thread.
#pragma once

#include <optional>
#include <string>

#include <drivetrain/value.h>

namespace drivetrain {

// What DeepSpeed reads where `type` is wanted ("boolean", "integer", "number", each perhaps " or null") and `value` is
// of another type: true for "true" or 1, 8 for "8". Nothing where it would not take the value either, such as "5e8" for
// an integer.
std::optional<Value> plain_value(const std::string& type, const Value& value);

// How the number in a text is written: "\n   write 8, without quotation marks"; "" where it holds none.
std::string number_hint(const std::string& type, const Value& value);

}  // namespace drivetrain
