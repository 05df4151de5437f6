// What `drivetrain doctor` found: each thing looked at is in order, deserves a word, or keeps a run from working; the
// last two say what to do. Plain values.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/value.h>

#include "internal.h"

namespace drivetrain {

struct Finding {
  enum Level { ok, warning, problem } level = ok;
  std::string part;                    // "machine", "plugins"
  std::string about;                   // "memory"
  std::string text;                    // what was found; may have several lines
  std::string remedy;                  // of a warning or a problem
  ErrorCode code = ErrorCode::config;  // of a problem
};

class DRIVETRAIN_INTERNAL Findings {
 public:
  // All that follows belongs to this part.
  void begin(const std::string& part) { part_ = part; }
  void ok(const std::string& about, const std::string& text) {
    list_.push_back({Finding::ok, part_, about, text, "", {}});
  }
  void warning(const std::string& about, const std::string& text, const std::string& remedy) {
    list_.push_back({Finding::warning, part_, about, text, remedy, {}});
  }
  void problem(const std::string& about, const std::string& text, const std::string& remedy,
               ErrorCode code = ErrorCode::config) {
    list_.push_back({Finding::problem, part_, about, text, remedy, code});
  }
  // Whatever `look` throws is a problem of its own.
  template <class Look>
  void attempt(const std::string& about, const Look& look) {
    try {
      look();
    } catch (const Error& e) {
      add_error(about, e);
    }
  }

  // What can be counted or compared, for other programs, and for `doctor --hostfile`, which compares hosts by it.
  void fact(const std::string& name, Value value) { facts_.set(name, std::move(value)); }

  const std::vector<Finding>& list() const { return list_; }
  size_t count(Finding::Level level) const;
  // 0 without problems; 5 where one is of communication, else 3 where one is a plugin's, else 2.
  int exit_code() const;
  std::string text() const;
  Value to_value() const;

 private:
  void add_error(const std::string& about, const Error& e);

  std::string part_;
  std::vector<Finding> list_;
  Value facts_ = Value::object();
};

}  // namespace drivetrain
