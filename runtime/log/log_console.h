// The Log of one rank: console and log.txt. Rank 0 shows info and up on stdout, warnings and errors on stderr; other
// ranks show warnings and errors only. Nothing here reads the environment: the caller says what it wants. Thread: any;
// lines come out whole.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <drivetrain/log.h>

#include "internal.h"

namespace drivetrain {

struct LogSettings {
  int64_t rank = 0;
  LogLevel level = LogLevel::info;  // the least that is shown
  bool colour = false;              // warnings yellow, errors red
  bool terminal = false;            // `out` is one: progress lines are shown
  int out = STDOUT_FILENO, err = STDERR_FILENO;
};

DRIVETRAIN_INTERNAL std::shared_ptr<Log> make_console_log(const LogSettings& settings);

// From now on what the console shows is added to the file, without colour and progress lines; what it has shown so far
// (up to 1000 lines) is written first. `log` comes from make_console_log. Throws Error(io) if the file cannot be
// opened. If a line cannot be written later (full disk), stderr says so once and the run goes on.
DRIVETRAIN_INTERNAL void attach_file(Log& log, const std::string& path);

// Adds a line to the attached file alone, if there is one: for what the console shows by another way, or should not
// show. Returns the file's path; "" if nothing was written.
DRIVETRAIN_INTERNAL std::string note_in_file(Log& log, const std::string& line);

// For ranks whose log has no file of its own: what they note is added to this one of another rank, if it is there by
// then and `may` allows it, which is asked each time.
DRIVETRAIN_INTERNAL void note_elsewhere(Log& log, const std::string& path, std::function<bool()> may);

}  // namespace drivetrain
