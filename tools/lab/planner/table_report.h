// Rows of published tables, planned as configs of this program under their system's profile, beside what was printed.
// Main thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "planner/forecast.h"
#include "predict/fit.h"
#include "predict/published.h"

namespace drivetrain {

// Relative errors, planned / printed - 1.
struct ErrorSummary {
  double mean = 0, median = 0, worst = 0;  // of their sizes
  size_t rows = 0;
};
DRIVETRAIN_INTERNAL ErrorSummary summary_of(std::vector<double> errors);
DRIVETRAIN_INTERNAL std::string summary_text(const std::string& what, const ErrorSummary& summary);
DRIVETRAIN_INTERNAL Value summary_value(const ErrorSummary& summary);

// Of a table or a run: a machine and a profile by name.
struct RowMachine {
  Hardware hardware;
  Profile profile;
};

// But for its ranks and what was printed of it, one row is the other.
DRIVETRAIN_INTERNAL bool same_but_ranks(const PublishedRow& a, const PublishedRow& b);

struct RowResult {
  const PublishedRow* row = nullptr;
  Forecast forecast;
  double scaling = 1;     // planned TGS over that of the fewest ranks of the table with the same settings
  bool at_limit = false;  // of the device's memory: judged as "fits" alone
  std::optional<double> tgs_error, gib_error;  // where the row has the figure and the profile what it takes
};

struct TableResult {
  std::vector<RowResult> rows;
  ErrorSummary tgs, gib;
  ErrorSummary held_tgs, held_gib;  // of rows that are held back from every fit
};
// `plan`: plans a row's config under its profile. `machine_of`: the machine and the profile of a row.
using MachineOfRow = std::function<const RowMachine&(const PublishedRow& row)>;
using PlanRow = std::function<Forecast(const PublishedRow& row, const RowMachine& machine)>;
DRIVETRAIN_INTERNAL TableResult plan_rows(const PublishedTable& table, const MachineOfRow& machine_of,
                                          const PlanRow& plan);

DRIVETRAIN_INTERNAL std::string table_text(const PublishedTable& table, const TableResult& result,
                                           const MachineOfRow& machine_of);
DRIVETRAIN_INTERNAL Value table_value(const PublishedTable& table, const TableResult& result,
                                      const MachineOfRow& machine_of);

}  // namespace drivetrain
