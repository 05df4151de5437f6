// A pattern as a table of states and classes of characters: matching reads each character once, whatever the pattern
// tries. Of several ways to match, the table keeps to the one that trying them in order would find first. Const calls
// from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "character_classes.h"
#include "pattern.h"

namespace drivetrain::bpe {

class PatternTable {
 public:
  // Error(config) beginning with `name` for a pattern whose table would be too large.
  PatternTable(const std::vector<PatternItems>& alternatives, const std::string& name);

  // The end of the match that begins at `at`, or Pattern::kNone, and how far the text was read.
  struct Attempt {
    size_t end, read;
  };
  Attempt match(std::string_view text, size_t at) const {
    size_t end = Pattern::kNone;
    for (uint32_t row = end_of_text_ + 1;;) {  // the row of state 1
      uint32_t of = end_of_text_;
      uint32_t length = 1;
      if (at < text.size()) {
        const auto first = static_cast<unsigned char>(text[at]);
        if (first < 0x80) {
          of = classes_.of_ascii(first);
        } else {
          const CodePoint one = code_point(text, at);
          of = classes_.of(one.value), length = one.length;
        }
      }
      const uint32_t to = table_[row + of];
      if (to & 1) end = at;
      row = to >> 1;
      if (row == 0 || at >= text.size()) return {end, at};  // row 0: no match is possible any more
      at += length;
    }
  }

 private:
  const CharacterClasses classes_;
  const uint32_t end_of_text_;  // counts as one more class
  // A row for each state, with a column for each class of the next character: twice the place of the row behind it, and
  // one more if a match ends in front of it.
  std::vector<uint32_t> table_;
};

}  // namespace drivetrain::bpe
