// Where each constant of a planned table is from, and what rows that the fitted ones were not fitted to are planned
// like: computed from the rows at hand. Main thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/table_report.h"

namespace drivetrain {

class FitReport {
 public:
  // Rows with a printed TGS count. All are of one machine.
  void add(const TableResult& result, const MachineOfRow& machine_of);
  std::string constants_text() const;  // each with its place and where it is from
  std::string text();                  // and how well others are planned
  Value to_value();

 private:
  struct Judged {
    LeftOut each;                 // one config left out after the other
    FitConstants of_all, of_few;  // fitted to every row; to rows of at most kFewRanks
  };
  const Judged& judged();
  std::vector<double> errors(const FitConstants& constants, double above_ranks) const;
  std::string beyond_text(const Judged& j) const;
  std::vector<double> held_errors() const;

  std::vector<Profile> memory_;  // of rows without a time
  std::optional<FitConstants> constants_;
  std::vector<FitRow> rows_, held_;  // held_: never fitted to
  std::optional<Judged> judged_;
};

}  // namespace drivetrain
