// Where plugins and runtime write lines for people. One Log per rank, handed out by Services: no global logger, so that
// ranks can be threads of one process. Thread: any.
#pragma once

#include <string>

#include <drivetrain/export.h>

DRIVETRAIN_CONTRACT(log)

namespace drivetrain {

enum class LogLevel { debug, info, warning, error };

class DRIVETRAIN_API Log {
 public:
  virtual ~Log();
  // One line, without a newline. Rank 0 shows info and up; other ranks show warnings and errors only.
  virtual void write(LogLevel level, const std::string& line) = 0;
  // A line that the next one replaces: shown on a terminal only, never kept in log.txt.
  virtual void progress(const std::string& line) = 0;

  void debug(const std::string& line) { write(LogLevel::debug, line); }
  void info(const std::string& line) { write(LogLevel::info, line); }
  void warning(const std::string& line) { write(LogLevel::warning, line); }
  void error(const std::string& line) { write(LogLevel::error, line); }
};

}  // namespace drivetrain
