// Optimal string alignment distance (Damerau 1964, restricted to swaps of neighbours) over normalised names.
#include "config/suggest.h"

#include <algorithm>
#include <cctype>

namespace drivetrain {
namespace {

std::string normal_name(const std::string& name) {
  std::string text = lower_case(name);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
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

size_t edit_distance(const std::string& first, const std::string& second) {
  const std::string a = normal_name(first), b = normal_name(second);
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = 1 + word.size() / 4;  // the farthest that may still be meant
  bool found = false;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance >= std::max(word.size(), candidate.size())) continue;  // nothing in common
    if (distance < best_distance || (!found && distance == best_distance)) {
      best = candidate, best_distance = distance, found = true;
    }
  }
  if (found) return best;
  for (const std::string& candidate : candidates) {
    if (is_part_of(normal_name(word), normal_name(candidate)) ||
        is_part_of(normal_name(candidate), normal_name(word))) {
      return candidate;
    }
  }
  return "";
}

std::string join(const std::vector<std::string>& words, const std::string& separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

std::string quoted_choice(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += "\"" + words[i] + "\"";
  }
  return text;
}

std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  const std::string near = nearest(word, known);
  std::string text = "\n   ";
  if (!near.empty()) text += "did you mean \"" + near + "\"?   ";
  return text + "known here: " + (known.empty() ? "nothing" : join(known));
}

}  // namespace drivetrain
