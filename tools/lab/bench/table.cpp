#include "bench/table.h"

#include <algorithm>

#include <drivetrain/toolkit/text.h>

namespace drivetrain {

std::string seconds_text(double seconds) {
  if (seconds >= 1) return formatted("%.3f s", seconds);
  if (seconds >= 1e-3) return formatted(seconds >= 0.1 ? "%.1f ms" : "%.2f ms", seconds * 1e3);
  return formatted("%.1f us", seconds * 1e6);
}

std::string TextTable::text() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string gap(widths[i] - row[i].size(), ' ');
      line += (i ? "  " : "") + (i ? gap + row[i] : row[i] + gap);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace drivetrain
