// Positions as text, and problems gathered over a whole file.
#include <algorithm>
#include <tuple>

#include <drivetrain/options.h>

namespace drivetrain {
namespace {

// File positions first, by line; then `--set` by number (hence the length before the text); last what has no place.
auto problem_order(const Problem& p) {
  const int group = p.where.file.empty() ? 2 : p.where.line == 0 ? 1 : 0;
  const size_t length = group == 1 ? p.where.file.size() : 0;
  return std::make_tuple(group, length, p.where.file, p.where.line, p.where.column);
}

std::vector<Problem> in_file_order(std::vector<Problem> list) {
  std::stable_sort(list.begin(), list.end(),
                   [](const Problem& a, const Problem& b) { return problem_order(a) < problem_order(b); });
  return list;
}

}  // namespace

std::string Position::text() const {
  if (line == 0) return file;
  return concat(file, ":", line, ":", column);
}

void Problems::add(const Position& where, const std::string& message, ErrorCode code) {
  list_.push_back({where, message, code});
}

void Problems::note(const Position& where, const std::string& message) { notes_.push_back({where, message}); }

std::string Problems::text() const {
  std::string text;
  for (const Problem& p : in_file_order(list_)) {
    if (!text.empty()) text += '\n';
    if (!p.where.file.empty()) text += p.where.text() + "  ";
    text += p.message;
  }
  return text;
}

void Problems::throw_if_any() const {
  if (!list_.empty()) throw Error(in_file_order(list_).front().code, text());
}

}  // namespace drivetrain
