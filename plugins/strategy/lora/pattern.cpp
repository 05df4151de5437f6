#include "pattern.h"

#include <algorithm>
#include <regex>
#include <utility>

#include <drivetrain/error.h>

namespace drivetrain::lora {
namespace {

std::regex expression(const std::string& text) {
  try {
    return std::regex(text, std::regex::ECMAScript);
  } catch (const std::regex_error& e) {
    throw fail(ErrorCode::config, "\"", text, "\" is no regular expression: ", e.what());
  }
}

// Letters to write, take away or change.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t corner = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = corner + (a[i - 1] != b[j - 1]);
      corner = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row.back();
}

}  // namespace

void check_expression(const std::string& text, const char* key) {
  try {
    expression(text);
  } catch (const Error& e) {
    throw fail(e.code(), key, ": ", e.what());
  }
}

bool ends_in(const std::string& path, const std::string& name) { return path == name || path.ends_with("." + name); }

bool names_module(const Value& names, const std::string& path) {
  if (names.is_null()) return false;
  if (names.is_string()) return std::regex_match(path, expression(names.as_string()));
  return std::any_of(names.items().begin(), names.items().end(),
                     [&](const Value& name) { return ends_in(path, name.as_string()); });
}

const Value* first_match(const Value& patterns, const std::string& path) {
  if (patterns.is_null()) return nullptr;
  for (const auto& [name, value] : patterns.members())
    if (std::regex_match(path, expression("(.*\\.)?(" + name + ")"))) return &value;
  return nullptr;
}

int64_t layer_number(const std::string& path) {
  static const std::regex number(R"(\.([0-9]{1,9})\.)");
  std::smatch found;
  return std::regex_search(path, found, number) ? std::stoll(found[1]) : -1;
}

std::vector<std::string> nearest_names(const std::string& word, const std::vector<std::string>& known) {
  std::vector<std::string> sorted = known;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const auto& a, const auto& b) { return distance(word, a) < distance(word, b); });
  if (sorted.size() > 3) sorted.resize(3);
  return sorted;
}

}  // namespace drivetrain::lora
