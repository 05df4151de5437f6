// Positions as text, and problems gathered over a whole file.
#include <algorithm>
#include <functional>
#include <tuple>

#include <drivetrain/options.h>

#include "base/printable.h"

namespace drivetrain {
namespace {

constexpr size_t kShownProblems = 20;  // of a file that is no config at all, or one mistake made everywhere

// File positions first, by line; then `--set` by number (hence the length before the text); last what has no place.
auto problem_order(const Problem& p) {
  const int group = p.where.file.empty() ? 2 : p.where.line == 0 ? 1 : 0;
  const size_t length = group == 1 ? p.where.file.size() : 0;
  return std::make_tuple(group, length, std::cref(p.where.file), p.where.line, p.where.column);
}

std::vector<const Problem*> in_file_order(const std::vector<Problem>& problems) {
  std::vector<const Problem*> list;
  for (const Problem& p : problems) list.push_back(&p);
  std::stable_sort(list.begin(), list.end(),
                   [](const Problem* a, const Problem* b) { return problem_order(*a) < problem_order(*b); });
  return list;
}

}  // namespace

std::string Position::text() const {
  if (line == 0) return one_line(file);
  return concat(one_line(file), ":", line, ":", column);
}

void Problems::add(const Position& where, const std::string& message, ErrorCode code) {
  list_.push_back({where, message, code});
}

void Problems::note(const Position& where, const std::string& message) { notes_.push_back({where, message}); }

void Problems::resolve(const Position& where, const std::string& key, const std::string& value,
                       const std::string& rule) {
  resolved_.push_back({where, key, value, rule});
}

AutoFacts::~AutoFacts() = default;

std::string Problems::text() const {
  std::string text;
  const std::vector<const Problem*> list = in_file_order(list_);
  for (size_t i = 0; i < std::min(list.size(), kShownProblems); ++i) {
    if (!text.empty()) text += '\n';
    if (!list[i]->where.file.empty()) text += list[i]->where.text() + "  ";
    text += list[i]->message;
  }
  if (list.size() > kShownProblems) text += concat("\nand ", list.size() - kShownProblems, " more problems");
  return text;
}

void Problems::throw_if_any() const {
  if (!list_.empty()) throw Error(in_file_order(list_).front()->code, text());
}

}  // namespace drivetrain
