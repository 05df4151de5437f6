#include "pattern.h"

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain::bpe {
namespace {

// What has to match behind the items at hand: those behind the group that they are in.
struct Rest {
  const PatternItem *item, *end;
  const Rest* rest;  // null: nothing
};

bool looks(const PatternItem& item) {
  return item.kind == PatternItem::Kind::ahead || item.kind == PatternItem::Kind::not_ahead;
}

// The published patterns give back some characters of a word. A stranger's may have several repeats of the same set
// behind one another, which try every way to share a text: no text is worth more than this, about a second.
constexpr uint64_t kMostGivenBack = 20'000'000;

// One attempt to match at one place.
struct Attempt {
  const std::string& pattern;
  std::string_view text;
  size_t begin;
  uint64_t given_back = 0;  // by repeats, of what they had taken
};

Error endless(const Attempt& attempt) {
  return fail(ErrorCode::config, attempt.pattern, " tries more than ", kMostGivenBack, " ways to match at byte ",
              attempt.begin,
              " of a text\n   repeats of the same characters behind one another do that, as in a*a*; take "
              "a pattern without them");
}

// Matches the items from `item` on at `at`, then the rest. Repeats take as much as they can and give back one by one.
size_t match_items(const PatternItem* item, const PatternItem* end, const Rest* rest, Attempt& attempt, size_t at) {
  const std::string_view text = attempt.text;
  for (; item != end; ++item) {
    if (item->kind == PatternItem::Kind::group) {
      const Rest behind{item + 1, end, rest};
      for (const PatternItems& items : item->group) {
        const size_t matched = match_items(items.data(), items.data() + items.size(), &behind, attempt, at);
        if (matched != Pattern::kNone) return matched;
      }
      if (item->least > 0) return Pattern::kNone;
      continue;
    }
    const CharacterSet& set = *item->set;
    if (looks(*item)) {
      const bool found = at < text.size() && set.has(code_point(text, at).value);
      if (found != (item->kind == PatternItem::Kind::ahead)) return Pattern::kNone;
      continue;
    }
    uint32_t count = 0;
    size_t reached = at;
    while (count < item->most && reached < text.size()) {
      const CodePoint next = code_point(text, reached);
      if (!set.has(next.value)) break;
      reached += next.length, ++count;
    }
    if (count < item->least) return Pattern::kNone;
    if (count == item->least || item->kind == PatternItem::Kind::possessive || (item + 1 == end && !rest)) {
      at = reached;
      continue;
    }
    for (;; --count) {
      const size_t matched = match_items(item + 1, end, rest, attempt, reached);
      if (matched != Pattern::kNone || count == item->least) return matched;
      if (++attempt.given_back > kMostGivenBack) throw endless(attempt);
      reached = previous_character(text, reached);
    }
  }
  return rest ? match_items(rest->item, rest->end, rest->rest, attempt, at) : at;
}

}  // namespace

void CharacterSet::add(uint32_t first, uint32_t last) {
  for (uint32_t c = first; c <= last; ++c) add(c);
}

void CharacterSet::add(const CharacterSet& other) {
  for (size_t i = 0; i < bits_.size(); ++i) bits_[i] |= other.bits_[i];
}

void CharacterSet::invert() {
  for (uint64_t& bits : bits_) bits = ~bits;
}

Pattern::Pattern(std::string_view expression, const std::string& where)
    : name_(concat(where, ": the pattern ", shown_pattern(expression))),
      alternatives_(parse_pattern(expression, where)) {
  if (alternatives_.size() > 64)
    throw fail(ErrorCode::config, where, ": the pattern has ", alternatives_.size(), " alternatives; 64 are known");
  for (size_t i = 0; i < alternatives_.size(); ++i) {
    const uint64_t bit = uint64_t{1} << i;
    if (!add_first_characters(alternatives_[i], bit)) continue;
    for (uint64_t& candidates : candidates_) candidates |= bit;  // what matches nothing does so in front of anything
  }
}

bool Pattern::add_first_characters(const PatternItems& items, uint64_t bit) {
  for (const PatternItem& item : items) {
    bool nothing = item.least == 0;
    if (looks(item)) {
      for (uint64_t& candidates : candidates_) candidates |= bit;
      return true;
    }
    for (const PatternItems& inner : item.group) nothing = add_first_characters(inner, bit) || nothing;
    for (uint32_t c = 0; c < 128 && item.set; ++c)
      if (item.set->has(c)) candidates_[c] |= bit;
    if (item.set) candidates_[128] |= bit;
    if (!nothing) return false;
  }
  return true;
}

size_t Pattern::match_at(std::string_view text, size_t at, uint64_t candidates) const {
  for (; candidates != 0; candidates &= candidates - 1) {
    const PatternItems& items = alternatives_[static_cast<size_t>(__builtin_ctzll(candidates))];
    Attempt attempt{name_, text, at};
    const size_t end = match_items(items.data(), items.data() + items.size(), nullptr, attempt, at);
    if (end != kNone) return end;
  }
  return kNone;
}

Pattern::Match Pattern::find(std::string_view text, size_t from) const {
  while (from < text.size()) {
    const auto first = static_cast<unsigned char>(text[from]);
    const uint64_t candidates = candidates_[first < 0x80 ? first : 128];
    if (candidates != 0) {
      const size_t end = match_at(text, from, candidates);
      if (end != kNone) return {from, end};
    }
    from += first < 0x80 ? 1 : code_point(text, from).length;
  }
  return {kNone, kNone};
}

}  // namespace drivetrain::bpe
