// A log that nobody reads. Any thread.
#pragma once

#include <drivetrain/log.h>

namespace drivetrain::test {

struct QuietLog : Log {
  void write(LogLevel, const std::string&) override {}
  void progress(const std::string&) override {}
};

}  // namespace drivetrain::test
