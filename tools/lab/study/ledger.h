// The ledger of a study: what was begun and how it ended, one JSON object per line. Lines are only ever added, and each
// is on the disk before the study goes on. The first line is the study itself.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "launch/rank_process.h"

namespace drivetrain::study {

// How a run of a cell ends.
enum class State { ok, oom, refused, timeout, crashed, nan, skipped };
const char* state_name(State state);
State state_called(const std::string& name);  // throws Error(io)

class Ledger {
 public:
  // Opens or begins the ledger in `folder`, which is made, and locks it. Throws Error(config) if another study is at
  // work there, Error(io) if it cannot be written or if a line is damaged that is not the last one.
  explicit Ledger(const std::string& folder);

  const std::vector<Value>& lines() const { return lines_; }  // that were there, without those that were cut
  int64_t cut_line() const { return cut_line_; }              // its number, if the last line was cut; 0: it was whole
  bool is_new() const { return lines_.empty(); }

  // Throws Error(io): "disk full".
  void add(const Value& line);

 private:
  void write(const std::string& text);

  std::string path_;
  program::Descriptor file_;
  std::vector<Value> lines_;
  int64_t cut_line_ = 0;
};

// The lines of a ledger that nobody needs to lock. Throws Error(config) if there is none, Error(io) if it is damaged.
std::vector<Value> read_ledger(const std::string& folder);

// Where two values differ, one line each, such as `repeats: 3 when it began, 5 now`; empty: nowhere.
std::vector<std::string> differences(const Value& before, const Value& now, const std::string& path = "");

}  // namespace drivetrain::study
