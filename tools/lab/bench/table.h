// A table for people: the first column to the left, figures to the right.
#pragma once

#include <string>
#include <vector>

#include "internal.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL TextTable {
 public:
  explicit TextTable(std::vector<std::string> headers) { rows_.push_back(std::move(headers)); }
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// "1.234 s", "12.3 ms", "4.56 us"
DRIVETRAIN_INTERNAL std::string seconds_text(double seconds);

}  // namespace drivetrain
