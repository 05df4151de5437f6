// What stands before an error or a note on the standard error: in colour on a terminal, unless NO_COLOR says otherwise.
#pragma once

#include <string>

namespace drivetrain::cli {

bool has_colour(int fd);  // a terminal that is not TERM=dumb, where NO_COLOR is not set, or to nothing

// "drivetrain: error: MESSAGE\n" for `fd`, its beginning red. What could move a cursor in the message is escaped.
std::string error_line(const std::string& message, int fd = 2);
std::string note_line(const std::string& message, int fd = 2);  // "note: MESSAGE\n", its beginning yellow
// A line of somebody else, as it is, with that beginning in red if it has it.
std::string with_red_begin(const std::string& line, int fd);

}  // namespace drivetrain::cli
