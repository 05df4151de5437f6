// Least squares over columns of equal length, solved by Boost.uBLAS.
#pragma once

#include <cstddef>
#include <vector>

namespace drivetrain::study {

using Column = std::vector<double>;

// Columns none of which is a sum of the others.
class ColumnSpace {
 public:
  // Adds the column and returns true, or leaves it out and returns false if it is a sum of those that are there.
  bool add(const Column& column);
  // The coefficient of each column, in the order in which they were added. Needs one column.
  std::vector<double> solve(const Column& values) const;
  size_t size() const { return columns_.size(); }

 private:
  Column residual(const Column& column) const;

  std::vector<Column> columns_;
  std::vector<std::vector<double>> gram_;  // products of every column with those before it and with itself
};

double product(const Column& a, const Column& b);

}  // namespace drivetrain::study
