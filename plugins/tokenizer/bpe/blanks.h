// Vocabularies of characters, as converters make them of SentencePiece's models: ▁ stands for a blank, and a character
// that is no token becomes the tokens of its bytes, <0x00> to <0xFF> ("byte_fallback"). Const calls from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <drivetrain/toolkit/text/blank_words.h>
#include <drivetrain/value.h>

namespace drivetrain::bpe {

// How blanks become ▁, and where one more is put in front.
struct Blanks {
  enum class InFront {
    no,
    first,  // of a text that does not begin with an added token, and with no blank
    each,   // of all between added tokens; where the pre-tokenizer does it, only of what does not begin with a blank
  };
  InFront in_front = InFront::no;
  bool by_normalizer = false;  // before tokens that are `normalized` are looked for
  bool split = false;          // every ▁ begins a piece
  bool strips_first = false;   // decoding drops the blank in front

  // What the normalizer makes of a text.
  std::string_view normalized(std::string_view text, std::string& buffer) const;
  // What the pre-tokenizer makes of a part between added tokens. `begins`: it is the begin of the text.
  std::string_view part(std::string_view text, bool begins, std::string& buffer) const;
};

// Sections "normalizer", "pre_tokenizer" and "decoder" of a tokenizer.json whose model has byte_fallback. Null sections
// are as good as none. Error(config) for what is not known.
Blanks read_blanks(const Value* normalizer, const Value* pre_tokenizer, const Value* decoder, const std::string& where);

// The byte that a token such as <0x0A> stands for.
std::optional<unsigned char> byte_of_token(std::string_view token);
// What a token decodes to.
std::string text_of_token(std::string_view token);
// Whether no token has a ▁ behind another character: then merges of a text are those of its words.
bool ends_before_blanks(const std::vector<std::pair<std::string, int32_t>>& tokens);

}  // namespace drivetrain::bpe
