#include "learned_tokens.h"

#include <algorithm>
#include <string>

#include <drivetrain/toolkit/text/utf8.h>

namespace drivetrain::instruction {
namespace {

using Span = RenderedChat::Span;
using Spans = std::vector<Span>;

// What each token adds to the one before it.
std::optional<std::vector<std::string>> pieces_of(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::vector<std::string> pieces;
  std::string alone, both;
  for (size_t i = 0; i < ids.size(); ++i) {
    alone.clear(), both.clear();
    if (i > 0) tokenizer.decode({&ids[i - 1], 1}, alone);
    tokenizer.decode({&ids[i > 0 ? i - 1 : 0], i > 0 ? size_t{2} : size_t{1}}, both);
    if (!both.starts_with(alone)) return std::nullopt;
    pieces.push_back(both.substr(alone.size()));
  }
  return pieces;
}

// Where the tokens stand in a text that they spell, but for blanks that are put in front.
std::optional<Spans> places_of(const std::vector<std::string>& pieces, std::string_view text) {
  Spans places;
  size_t at = 0;
  for (std::string_view piece : pieces) {
    const std::string_view rest = text.substr(at);
    if (!rest.starts_with(piece)) {
      if (!piece.starts_with(' ') || !rest.starts_with(piece.substr(1))) return std::nullopt;
      piece.remove_prefix(1);
    }
    places.push_back({at, at + piece.size()});
    at += piece.size();
  }
  return at == text.size() ? std::optional(places) : std::nullopt;
}

Spans joined(const std::vector<std::string>& pieces, std::string& text) {
  Spans places;
  for (const std::string& piece : pieces) {
    places.push_back({text.size(), text.size() + piece.size()});
    text += piece;
  }
  return places;
}

// Places of a text in what its tokens decode to, by what its beginnings decode to.
class Beginnings {
 public:
  Beginnings(const Tokenizer& tokenizer, std::string_view text, const std::string& decoded)
      : tokenizer_(tokenizer), text_(text), decoded_(decoded) {}

  Span in_decoded(const Span& span) const {
    const Place begin = place(span.begin), end = place(span.end),
                behind_first = place(span.begin + code_point(text_, span.begin).length);
    // The first character is white space that the token before it took, or the last what the token behind it takes.
    const bool taken = !begin.differs && !behind_first.differs && behind_first.at == begin.at && begin.at > 0;
    return {taken ? begin.at - 1 : begin.at, end.differs ? end.at + 1 : end.at};
  }

 private:
  struct Place {
    size_t at;
    bool differs;  // the beginning by itself ends otherwise than it does in the whole
  };
  Place place(size_t end) const {
    std::vector<int32_t> ids;
    std::string alone;
    tokenizer_.encode(text_.substr(0, end), ids);
    tokenizer_.decode(ids, alone);
    const auto [mine, whole] = std::mismatch(alone.begin(), alone.end(), decoded_.begin(), decoded_.end());
    return {static_cast<size_t>(mine - alone.begin()), mine != alone.end()};
  }

  const Tokenizer& tokenizer_;
  const std::string_view text_;
  const std::string& decoded_;
};

}  // namespace

std::optional<std::vector<char>> tokens_in_spans(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                                                 std::string_view text, const Spans& spans) {
  const auto pieces = pieces_of(tokenizer, ids);
  if (!pieces) return std::nullopt;
  Spans parts = spans;
  std::optional<Spans> places = places_of(*pieces, text);
  if (!places) {
    std::string decoded;
    places = joined(*pieces, decoded);
    const Beginnings beginnings(tokenizer, text, decoded);
    std::erase_if(parts, [](const Span& part) { return part.begin == part.end; });
    for (Span& part : parts) part = beginnings.in_decoded(part);
  }
  std::vector<char> in_spans;
  for (const Span& token : *places)  // one without a character of its own belongs to the one behind it
    in_spans.push_back(std::any_of(parts.begin(), parts.end(), [&](const Span& part) {
      return token.begin < part.end && std::max(token.end, token.begin + 1) > part.begin;
    }));
  return in_spans;
}

}  // namespace drivetrain::instruction
