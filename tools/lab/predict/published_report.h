// Planned against printed, row by row, as text and as JSON. Pure.
#pragma once

#include <string>
#include <vector>

#include "predict/row_prediction.h"

namespace drivetrain {

// Relative errors, planned / printed - 1.
struct ErrorSummary {
  double mean = 0, median = 0, worst = 0;  // of their sizes
  size_t rows = 0;
};
DRIVETRAIN_INTERNAL ErrorSummary summary_of(std::vector<double> errors);

struct RowResult {
  const PublishedRow* row = nullptr;
  std::optional<StepTime> time;     // where the row has a TGS and the system a time
  std::optional<RowMemory> memory;  // where the row has a memory and the system a profile of it
  bool at_limit = false;            // of the device's memory: judged as "fits" alone
  std::optional<double> tgs_error, gib_error;
};

struct TableResult {
  std::vector<RowResult> rows;
  ErrorSummary tgs, gib;
};
DRIVETRAIN_INTERNAL TableResult predict_table(const PublishedTable& table);

DRIVETRAIN_INTERNAL std::string table_text(const PublishedTable& table, const TableResult& result);
DRIVETRAIN_INTERNAL Value table_value(const PublishedTable& table, const TableResult& result);

}  // namespace drivetrain
