// What a Value accessor throws: an Error that keeps position and message apart, so that an option table can put the
// option's name between them. Thrown and caught in the runtime, and in what reads configs.
#pragma once

#include <string>

#include <drivetrain/error.h>
#include <drivetrain/options.h>

#include "internal.h"

namespace drivetrain {

struct ValueError : Error {
  ValueError(const Position& at, const std::string& text)
      : Error(ErrorCode::config, (at.file.empty() ? "" : at.text() + "  ") + text), where(at), problem(text) {}
  Position where;
  std::string problem;  // without the position
};

// Type and, where it is short, the value: `integer 3`, `string "abc"`, `object`.
DRIVETRAIN_INTERNAL std::string describe(const Value& value);

// The value as JSON on one line, shortened where it is long.
std::string short_json(const Value& value);

// What to write instead where true or false is wanted, as a further line; "" if it cannot be told.
std::string boolean_hint(const Value& value);

// So many problems that nobody reads what a further one has to say: it is told in short.
inline bool are_enough(const Problems& problems) { return problems.list().size() >= 100; }

}  // namespace drivetrain
