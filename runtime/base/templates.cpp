#include "base/templates.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace drivetrain {
namespace {

struct Marks {
  const char *begin, *end;
};
constexpr std::array<Marks, 5> kMarks = {{{"{{", "}}"}, {"{%", "%}"}, {"${", "}"}, {"<<", ">>"}, {"$(", ")"}}};

// CONFIG_BATCH_SIZE, and not FAST or O1, which are values: two words at least.
bool is_capital_name(const std::string& text) {
  const bool words = text.find('_') != std::string::npos && text.size() > 3;
  return words && std::isupper(static_cast<unsigned char>(text.front())) &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isupper(c) || std::isdigit(c) || c == '_'; });
}

bool is_between(const std::string& text, const std::string& begin, const std::string& end) {
  return text.size() > begin.size() + end.size() && text.starts_with(begin) && text.ends_with(end);
}

}  // namespace

bool is_placeholder(const std::string& value) {
  if (value.empty()) return false;
  for (const Marks& marks : kMarks)
    if (is_between(value, marks.begin, marks.end)) return true;
  const bool shell = value.size() > 1 && value[0] == '$' && is_capital_name(value.substr(1) + "_X");
  return shell || is_between(value, "<", ">") || is_between(value, "%", "%") || is_between(value, "__", "__") ||
         is_capital_name(value);
}

bool is_mark(const std::string& word) { return is_placeholder(word) || is_capital_name(word + "_X"); }

std::optional<std::pair<size_t, std::string>> find_placeholder(const std::string& text) {
  std::optional<std::pair<size_t, std::string>> first;
  for (const Marks& marks : kMarks) {
    const size_t begin = text.find(marks.begin);
    if (begin == std::string::npos || (first && first->first < begin)) continue;
    const size_t end = text.find(marks.end, begin + 2);
    if (end == std::string::npos || end - begin > 200) continue;
    first = {begin, text.substr(begin, end + std::string(marks.end).size() - begin)};
  }
  return first;
}

}  // namespace drivetrain
