#include "report/text_table.h"

#include <algorithm>

namespace drivetrain {

std::string aligned(const std::vector<TextRow>& rows, const std::string& indent, const std::set<size_t>& right) {
  std::vector<size_t> width;
  for (const TextRow& row : rows)
    for (size_t c = 0; c < row.size(); ++c) {
      if (c >= width.size()) width.push_back(0);
      width[c] = std::max(width[c], row[c].size());
    }
  std::string text;
  for (const TextRow& row : rows) {
    std::string line = indent;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string blanks(width[c] - row[c].size(), ' ');
      line += right.contains(c) ? blanks + row[c] : row[c] + (c + 1 == row.size() ? "" : blanks);
      if (c + 1 < row.size()) line += "  ";
    }
    text += line.erase(line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace drivetrain
