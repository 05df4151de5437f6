// A table of keys as a README shows it.
#pragma once

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/key_table.h>

namespace drivetrain::test {

// "| `a`, `b` | part | refused | but `0`; in words |"; without the second where the format has one part.
inline std::string readme_row(const KeyRow& row) {
  std::string names, plain = row.plain ? row.plain : "";
  for (const std::string& name : spellings(row.names)) names += concat(names.empty() ? "`" : ", `", name, "`");
  if (row.use == KeyUse::refused && plain.size() >= 2) plain = plain.substr(1, plain.size() - 2);
  std::string detail;
  if (!plain.empty())
    detail = concat(row.use == KeyUse::refused ? "but `" : "absent: `", plain, "`", *row.why ? "; " : "");
  return concat("| ", names, *row.of ? concat(" | ", row.of) : "", " | ", word_of(row.use), " | ", detail, row.why,
                " |\n");
}

// Those that the file lacks.
inline std::string rows_missing_in(const std::string& readme, const std::vector<std::string>& rows) {
  std::ifstream file(readme);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::string missing;
  for (const std::string& row : rows)
    if (text.find(row) == std::string::npos) missing += row;
  return missing;
}

}  // namespace drivetrain::test
