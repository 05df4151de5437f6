// Writing whole texts. Any thread, one at a time for each descriptor.
#pragma once

#include <string>

namespace drivetrain::program {

// All of it, when the other end takes it; a reader that is gone is nobody's error. Where a reader takes nothing while a
// signal asks this process to end (SIGINT, SIGTERM, SIGHUP, which it blocks), the wait is over after two seconds: from
// then on what is not taken at once is lost, and a line says so where the reader goes on.
void write_text(int fd, const std::string& text);

}  // namespace drivetrain::program
