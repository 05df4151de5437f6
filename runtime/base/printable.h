// Text from files, names and the environment on its way to people: what could move a cursor, recolour a terminal or
// turn a line around is shown as an escape instead. Pure functions; any thread. Also part of the program itself.
#pragma once

#include <string>

#include "internal.h"

namespace drivetrain {

// For a whole message, at the edge where it is printed: line breaks and tabs are ours and stay. Every other control
// character, bidirectional marks, line separators and bytes that are not UTF-8 become \x1b or \u202e. All else stays.
DRIVETRAIN_INTERNAL std::string printable(const std::string& text);

// For a name or a value inside a message: one line, line breaks escaped too, and shortened in the middle, with its
// length, where it is longer than a line.
DRIVETRAIN_INTERNAL std::string shown(const std::string& name);

// The same without shortening, for paths: somebody may want to copy them.
DRIVETRAIN_INTERNAL std::string one_line(const std::string& path);

// JSON text with such characters as \u escapes inside its strings, where alone they can stand: it reads back to the
// same.
DRIVETRAIN_INTERNAL std::string printable_json(const std::string& json);

}  // namespace drivetrain
