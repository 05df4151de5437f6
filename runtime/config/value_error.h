// What a Value accessor throws: an Error that keeps position and message apart, so that an option table can put the
// option's name between them. Thrown and caught inside libdrivetrain.so only.
#pragma once

#include <string>

#include <drivetrain/error.h>
#include <drivetrain/value.h>

namespace drivetrain {

struct ValueError : Error {
  ValueError(const Position& at, const std::string& text)
      : Error(ErrorCode::config, (at.file.empty() ? "" : at.text() + "  ") + text), where(at), problem(text) {}
  Position where;
  std::string problem;  // without the position
};

// Type and, where it is short, the value: `integer 3`, `string "abc"`, `object`.
std::string describe(const Value& value);

}  // namespace drivetrain
