// Optimal string alignment distance (Damerau 1964, restricted to swaps of neighbours) over normalised names, with
// weights for what fingers do.
#include "base/suggest.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include <drivetrain/toolkit/text.h>

namespace drivetrain {
namespace {

constexpr size_t kLongestWord = 100;  // nothing that anybody knows is longer

std::string normal_name(const std::string& name) {
  std::string text = lower_case(name);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

// Rows of a keyboard, each half a key further to the right than the one above it.
bool are_neighbours(char a, char b) {
  static const std::string rows[] = {"1234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm"};
  const auto place = [](char c) {
    for (int row = 0; row < 4; ++row)
      if (const size_t at = rows[row].find(c); at != std::string::npos)
        return std::pair(row, 2 * static_cast<int>(at) + row);
    return std::pair(-9, -99);
  };
  const auto [row_a, at_a] = place(a);
  const auto [row_b, at_b] = place(b);
  return std::abs(row_a - row_b) <= 1 && std::abs(at_a - at_b) <= 2 && row_a >= 0 && row_b >= 0;
}

double wrong_letter(char typed, char meant) {
  if (typed == meant) return 0;
  return are_neighbours(typed, meant) ? 0.7 : 1;
}

// A letter of `text` too many, or one too few: the cost by what stands beside it.
double single_letter(const std::string& text, size_t at, double plain) {
  const char before = at > 0 ? text[at - 1] : '\0', after = at + 1 < text.size() ? text[at + 1] : '\0';
  if (text[at] == '_') return 0.4;
  if (text[at] == before || text[at] == after) return 0.6;
  return plain;
}

double further_letter(const std::string& typed, size_t at) {
  const char before = at > 0 ? typed[at - 1] : '\0', after = at + 1 < typed.size() ? typed[at + 1] : '\0';
  const bool slipped = are_neighbours(typed[at], before) || are_neighbours(typed[at], after);
  return single_letter(typed, at, slipped ? 0.75 : 1);
}

// Between normalised names.
double cost(const std::string& a, const std::string& b) {
  std::vector<double> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j < b.size(); ++j) last[j + 1] = last[j] + single_letter(b, j, 0.85);
  for (size_t i = 1; i <= a.size(); ++i) {
    const double further = further_letter(a, i - 1);
    row[0] = last[0] + further;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + further, row[j - 1] + single_letter(b, j - 1, 0.85),
                         last[j - 1] + wrong_letter(a[i - 1], b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 0.7);
    }
    before.swap(last);
    last.swap(row);
  }
  // People see to it that a word begins right.
  return last[b.size()] + (!a.empty() && !b.empty() && a[0] != b[0] ? 0.15 : 0);
}

// `layers` in `num_layers`: a whole end of the name, long enough not to be chance.
bool is_part_of(const std::string& part, const std::string& whole) {
  return part.size() >= 4 && part.size() < whole.size() && (whole.starts_with(part) || whole.ends_with(part));
}

}  // namespace

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

double typing_cost(const std::string& word, const std::string& meant) {
  return cost(normal_name(word), normal_name(meant));
}

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  if (word.size() > kLongestWord) return "";
  const std::string typed = normal_name(word);
  const std::string* best = nullptr;
  double least = 1.1 + static_cast<double>(typed.size() / 4);  // the farthest that may still be meant
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongestWord) continue;
    const std::string meant = normal_name(candidate);
    const double slips = cost(typed, meant);
    if (slips > 0.8 * static_cast<double>(std::max(typed.size(), meant.size()))) continue;  // nothing in common
    if (slips < least) best = &candidate, least = slips;
  }
  if (best) return *best;
  for (const std::string& candidate : candidates) {
    const std::string meant = normal_name(candidate);
    if (is_part_of(typed, meant) || is_part_of(meant, typed)) return candidate;
  }
  return "";
}

std::string quoted_choice(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += "\"" + words[i] + "\"";
  }
  return text;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known, const std::string& before) {
  const std::string near = nearest(word, known);
  return near.empty() ? "" : before + "did you mean \"" + near + "\"?";
}

std::string suggestion(const std::string& word, const std::vector<std::string>& known,
                       const std::vector<std::string>& unlisted) {
  std::vector<std::string> all = known;
  all.insert(all.end(), unlisted.begin(), unlisted.end());
  const std::string near = did_you_mean(word, all, "");
  return "\n   " + near + (near.empty() ? "" : "   ") + "known here: " + (known.empty() ? "nothing" : join(known));
}

}  // namespace drivetrain
