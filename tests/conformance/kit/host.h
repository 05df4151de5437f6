// What a plugin gets from a test in place of a runtime: a log that remembers, a store that is not there, services with
// which it can create the installed plugins.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/services.h>

#include <drivetrain/testkit/kit/plugins.h>

namespace drivetrain::test {

struct LinesLog : Log {
  void write(LogLevel level, const std::string& line) override {
    (level == LogLevel::warning ? warnings : lines).push_back(line);
  }
  void progress(const std::string& line) override { progress_lines.push_back(line); }
  std::vector<std::string> lines, warnings, progress_lines;
};

struct NoStore : Store {
  void set(const std::string&, const std::string&) override { absent(); }
  std::string get(const std::string&, double) override { return absent(), ""; }
  bool has(const std::string&) override { return absent(), false; }
  int64_t add(const std::string&, int64_t) override { return absent(), 0; }
  static void absent() { throw std::logic_error("this test has no store"); }
};

// One rank on the CPU. Outlives the plugins that are created with its services.
struct Host {
  Host() = default;
  Host(const Host&) = delete;  // its services refer to it
  LinesLog log;
  NoStore store;
  Services services{.log = log, .store = store, .plugins = &maker};
  const InstalledMaker maker{services};
};

// What an Error says, or "" if none was thrown.
template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace drivetrain::test
