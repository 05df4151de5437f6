// Regular fractions of a cross. A defining word w over the factors keeps the cells with sum of w_f * level_f = 0 modulo
// a prime p; several words keep what all of them keep. The words and all their sums are what cannot be told from zero:
// the fewest factors in one of these is the resolution.
#include <algorithm>

#include <drivetrain/error.h>

#include "study/design.h"

namespace drivetrain::study {
namespace {

using Word = std::vector<int>;

constexpr int kTooMany = 1 << 20;  // words that are tried

std::vector<int> primes_of(int64_t number) {
  std::vector<int> primes;
  for (int64_t p = 2; number > 1; ++p)
    for (; number % p == 0; number /= p) primes.push_back(static_cast<int>(p));
  return primes;
}

int weight(const Word& word) {
  return static_cast<int>(std::count_if(word.begin(), word.end(), [](int x) { return x != 0; }));
}

// Words over the factors whose number of levels p divides, those with most factors first.
std::vector<Word> words_over(const std::vector<int>& levels, int p) {
  std::vector<Word> words(1);
  for (const int count : levels) {
    std::vector<Word> longer;
    for (const Word& word : words)
      for (int x = 0; x < (count % p == 0 ? p : 1); ++x) longer.push_back(word), longer.back().push_back(x);
    words = std::move(longer);
    if (words.size() > kTooMany) throw fail(ErrorCode::config, "a fraction of so many factors is not in this version");
  }
  std::stable_sort(words.begin(), words.end(), [](const Word& a, const Word& b) { return weight(a) > weight(b); });
  return words;
}

// All sums of `span` and multiples of `word` that have a share of the latter.
std::vector<Word> sums_with(const std::vector<Word>& span, const Word& word, int p) {
  std::vector<Word> sums;
  for (const Word& one : span)
    for (int times = 1; times < p; ++times) {
      sums.push_back(one);
      for (size_t f = 0; f < word.size(); ++f) sums.back()[f] = (one[f] + times * word[f]) % p;
    }
  return sums;
}

// Adds `count` words to `chosen` so that no sum has fewer than `least` factors.
bool choose(const std::vector<Word>& words, size_t from, int count, int least, int p, std::vector<Word>& span,
            std::vector<Word>& chosen) {
  if (count == 0) return true;
  for (size_t i = from; i < words.size() && weight(words[i]) >= least; ++i) {
    const std::vector<Word> sums = sums_with(span, words[i], p);
    if (std::any_of(sums.begin(), sums.end(), [&](const Word& w) { return weight(w) < least; })) continue;
    const size_t before = span.size();
    span.insert(span.end(), sums.begin(), sums.end());
    chosen.push_back(words[i]);
    if (choose(words, i + 1, count - 1, least, p, span, chosen)) return true;
    span.resize(before), chosen.pop_back();
  }
  return false;
}

void keep_those_of(const Word& word, int p, std::vector<std::vector<int>>& cells) {
  std::erase_if(cells, [&](const std::vector<int>& cell) {
    int sum = 0;
    for (size_t f = 0; f < word.size(); ++f) sum += word[f] * cell[f];
    return sum % p != 0;
  });
}

std::vector<std::vector<int>> all_cells(const std::vector<int>& levels) {
  std::vector<std::vector<int>> cells(1);
  for (const int count : levels) {
    std::vector<std::vector<int>> longer;
    for (const auto& cell : cells)
      for (int level = 0; level < count; ++level) longer.push_back(cell), longer.back().push_back(level);
    cells = std::move(longer);
    if (cells.size() > kTooMany) throw fail(ErrorCode::config, "a fraction of so many cells is not in this version");
  }
  return cells;
}

}  // namespace

Fraction fraction_of(const std::vector<int>& levels, int64_t fraction) {
  Fraction found{all_cells(levels), 1 << 10};
  const std::vector<int> primes = primes_of(fraction);
  for (size_t i = 0; i < primes.size();) {
    const int p = primes[i], count = static_cast<int>(std::count(primes.begin(), primes.end(), p));
    const std::vector<Word> words = words_over(levels, p);
    std::vector<Word> chosen;
    int least = static_cast<int>(levels.size());
    for (; least >= 3; --least) {
      std::vector<Word> span = {Word(levels.size(), 0)};
      if (choose(words, 0, count, least, p, span, chosen)) break;
    }
    if (least < 3)
      throw fail(ErrorCode::config, "1 of ", fraction, " cells of these factors confounds main effects: it needs more ",
                 "factors whose number of levels ", p,
                 " divides\n   use a smaller \"fraction\", or \"cross\": \"full\"");
    for (const Word& word : chosen) keep_those_of(word, p, found.cells);
    found.resolution = std::min(found.resolution, least);
    i += static_cast<size_t>(count);
  }
  return found;
}

}  // namespace drivetrain::study
