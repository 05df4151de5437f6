#include <drivetrain/toolkit/files/key_table.h>

#include <algorithm>

namespace drivetrain {

const char* word_of(KeyUse use) {
  constexpr const char* kWords[] = {"honoured", "compared", "refused", "no effect", "left out, named"};
  return kWords[static_cast<size_t>(use)];
}

std::vector<std::string> spellings(const std::string& names) {
  std::vector<std::string> list(1);
  for (const char c : names)
    if (c == '|')
      list.emplace_back();
    else
      list.back() += c;
  return list;
}

const KeyRow* find_key(std::span<const KeyRow> table, const std::string& of, const std::string& name) {
  for (const KeyRow& row : table)
    if (const std::vector<std::string> names = spellings(row.names);
        of == row.of && std::find(names.begin(), names.end(), name) != names.end())
      return &row;
  return nullptr;
}

}  // namespace drivetrain
