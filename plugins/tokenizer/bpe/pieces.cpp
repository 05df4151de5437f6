#include "pieces.h"

#include "unicode.h"

namespace drivetrain::bpe {

Pattern::Match Pieces::next(const Cut& cut, std::string_view text, size_t from) {
  if (!cut.patterns.empty()) return cut.patterns[0].find(text, from);
  for (size_t at = from; at < text.size();) {
    const CodePoint one = code_point(text, at);
    size_t end = at + one.length;
    if (is_numeric(one.value)) {
      while (cut.kind == Cut::Kind::digits && end < text.size() && is_numeric(code_point(text, end).value))
        end += code_point(text, end).length;
      return {at, end};
    }
    at = end;
  }
  return {Pattern::kNone, Pattern::kNone};
}

}  // namespace drivetrain::bpe
