#include "pattern.h"

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <utility>

#include <drivetrain/error.h>

namespace drivetrain::lora {
namespace {

// A match goes through the path once, with all states of the expression side by side (__polynomial, of libstdc++, which
// LibTorch brings): tries one after the other take centuries for "(a+)+$". It knows no references back to groups.
std::regex expression(const std::string& text) {
  try {
    return std::regex(text, std::regex::ECMAScript | std::regex::nosubs | std::regex_constants::__polynomial);
  } catch (const std::regex_error& e) {
    throw fail(ErrorCode::config, "\"", text, "\" is no regular expression: ", e.what());
  }
}

constexpr size_t kMostCharacters = 2'000;
constexpr double kMostStates = 10'000;

// The largest number behind a '{'.
double most_times(const char* text) {
  double most = 1;
  for (char* end = nullptr; *text && *text != '}'; text = end == text ? text + 1 : end)
    most = std::max(most, std::strtod(text, &end));
  return most;
}

// What would take a match, or the stack, too long; empty: nothing. Counts are taken as if each repeated all others.
std::string excess_of(const std::string& text) {
  if (text.size() > kMostCharacters) return concat("has ", text.size(), " characters; write at most ", kMostCharacters);
  auto states = static_cast<double>(text.size());
  std::vector<bool> open;  // groups; true: it looks ahead
  bool in_class = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool ahead = c == '(' && (text.compare(i + 1, 2, "?=") == 0 || text.compare(i + 1, 2, "?!") == 0);
    if (c == '\\') {
      i += text.compare(i + 1, 1, "c") == 0 ? 2 : 1;  // \cX is one character
    } else if (in_class || c == '[') {
      in_class = c != ']';
    } else if (c == '(') {
      if (ahead && std::find(open.begin(), open.end(), true) != open.end())
        return "looks ahead, (?= or (?!, inside of what looks ahead; write one behind the other";
      open.push_back(ahead);
    } else if (c == ')' && !open.empty()) {
      open.pop_back();
    } else if (c == '{') {
      states *= most_times(text.c_str() + i + 1);
    }
  }
  if (states <= kMostStates) return "";
  return concat("has counts in {} that multiply its ", text.size(), " characters to ", states,
                "; write smaller ones, up to ", kMostStates, ", or * and +");
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
  if (const std::string excess = excess_of(text); !excess.empty())
    throw fail(ErrorCode::config, key, ": the regular expression \"", text.substr(0, 60),
               text.size() > 60 ? "...\" " : "\" ", excess);
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
