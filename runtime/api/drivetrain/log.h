// Where plugins and the runtime write messages for the user. Each rank has one Log, in Services. There is no global
// logger, since ranks may be threads of one process. Thread: any. Calls do not throw because of the text.
#pragma once

#include <string>

#include <drivetrain/export.h>

DRIVETRAIN_CONTRACT(log)

namespace drivetrain {

enum class LogLevel { debug, info, warning, error };

class DRIVETRAIN_API Log {
 public:
  virtual ~Log();
  // Writes one line; `line` has no newline. Rank 0 shows info, warnings and errors; other ranks warnings and errors.
  virtual void write(LogLevel level, const std::string& line) = 0;
  // Shows a line that the next one replaces. Only on a terminal; never in log.txt.
  virtual void progress(const std::string& line) = 0;

  void debug(const std::string& line) { write(LogLevel::debug, line); }
  void info(const std::string& line) { write(LogLevel::info, line); }
  void warning(const std::string& line) { write(LogLevel::warning, line); }
  void error(const std::string& line) { write(LogLevel::error, line); }
};

}  // namespace drivetrain
