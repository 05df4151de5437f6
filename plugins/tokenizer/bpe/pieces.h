// Pre-tokenizers: how a text is cut into the pieces that are encoded one by one. Const calls from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pattern.h"

namespace drivetrain::bpe {

// One step; a sequence of them cuts every piece of the step before.
struct Cut {
  enum class Kind {
    pattern,         // a match is a piece, and so is what lies between two of them; an empty match only cuts
    only_matches,    // what lies between two matches is dropped
    digit,           // every digit is a piece
    digits,          // digits beside each other are one piece
    space_in_front,  // a piece that begins otherwise gets a blank
  };
  Kind kind = Kind::pattern;
  std::vector<Pattern> patterns{};  // one, if the kind has any
};

class Pieces {
 public:
  explicit Pieces(std::vector<Cut> cuts) : cuts_(std::move(cuts)) {}

  // Calls use(piece) for all pieces in order; none is empty.
  template <class Use>
  void each(std::string_view text, const Use& use) const {
    step(0, text, use);
  }

 private:
  template <class Use>
  void step(size_t index, std::string_view text, const Use& use) const {
    if (text.empty()) return;
    if (index == cuts_.size()) return use(text);
    const Cut& cut = cuts_[index];
    if (cut.kind == Cut::Kind::space_in_front && text[0] != ' ') return step(index + 1, ' ' + std::string(text), use);
    if (cut.kind == Cut::Kind::space_in_front) return step(index + 1, text, use);
    size_t done = 0, from = 0;
    for (;;) {
      const Pattern::Match match = next(cut, text, from);
      if (match.begin == Pattern::kNone) break;
      if (cut.kind != Cut::Kind::only_matches) step(index + 1, text.substr(done, match.begin - done), use);
      step(index + 1, text.substr(match.begin, match.end - match.begin), use);
      done = from = match.end;
      if (match.begin == match.end) from += code_point(text, from).length;  // else the same match is found for ever
    }
    if (cut.kind != Cut::Kind::only_matches) step(index + 1, text.substr(done), use);
  }
  static Pattern::Match next(const Cut& cut, std::string_view text, size_t from);

  const std::vector<Cut> cuts_;
};

}  // namespace drivetrain::bpe
