// The launcher's last words: what ranks said, and which of them failed first.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launch/outcome.h"
#include "launch/rank_errors.h"
#include "launch/rank_lines.h"

namespace drivetrain::program {

// A line of the launcher's own, written at once.
void launcher_says(Outlet& to, const std::string& text);
void launcher_says(int to, const std::string& text);  // while no rank runs

// What ranks have said so far, of ranks that say the same only the first.
void pass_first_errors(std::vector<RankLines>& ranks);

class Report {
 public:
  using Say = std::function<void(const std::string&)>;
  // After all ranks have ended.
  Report(std::vector<RankLines>& ranks, const std::vector<RankEnd>& ends, Say say);

  void pass_errors() const;
  void name(const RankEnd& failure) const;

 private:
  RankLines& lines_of(int rank) const;
  int code_of(int rank) const;
  const SameError* said_by(int rank) const;
  bool came_too_late(int rank) const;
  bool all_said_the_same(const SameError* same) const;
  bool stands_above(int rank) const;
  std::string missing_there(const RankEnd& failure) const;

  std::vector<RankLines>& ranks_;
  const std::vector<RankEnd>& ends_;
  const Say say_;
  std::vector<SameError> said_;  // with the ranks' numbers
};

}  // namespace drivetrain::program
