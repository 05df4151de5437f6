#include "pattern.h"

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "pattern_table.h"

namespace drivetrain::bpe {
namespace {

// Characters that attempts read and that are in no match. A published pattern matches nearly everywhere; a stranger's
// may read a whole text at each of its places and find nothing.
constexpr uint64_t kMostReadInVain = 50'000'000;

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
      table_(std::make_shared<PatternTable>(parse_pattern(expression, where), name_)) {}

Pattern::Match Pattern::find(std::string_view text, size_t from) const {
  uint64_t in_vain = 0;
  for (size_t at = from; at < text.size(); at += code_point(text, at).length) {
    const PatternTable::Attempt attempt = table_->match(text, at);
    if (attempt.end != kNone) return {at, attempt.end};
    in_vain += attempt.read - at;
    if (in_vain > kMostReadInVain)
      throw fail(
          ErrorCode::config, name_, " reads more than ", kMostReadInVain, " bytes behind byte ", from,
          " of a text and matches nothing\n   a repeat that reaches the end of a text does that, if something has ",
          "to follow it, as in a*b; take a pattern without it");
  }
  return {kNone, kNone};
}

}  // namespace drivetrain::bpe
