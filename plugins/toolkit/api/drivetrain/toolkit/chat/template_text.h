// A text of a chat template as tokens. Marks in it, such as <|im_end|> or </s>, are meant as special tokens. Thread:
// any.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <drivetrain/tokenizer.h>

namespace drivetrain {

// What looks like a special token and is none of the vocabulary, with the number of tokens that its text becomes.
using UnknownMarks = std::map<std::string, int64_t>;

// <NAME> without blanks, front to back.
std::vector<std::string_view> marks_of(std::string_view text);

// The tokens of the text. A mark that the tokenizer finds in no text and never writes, as SentencePiece treats its
// control tokens, becomes the token all the same: </s>, and [INST] where it is one. The texts between such marks are
// encoded by themselves, and `hidden` is told that there are any.
std::vector<int32_t> encode_template_text(const Tokenizer& tokenizer, std::string_view text, UnknownMarks& unknown,
                                          bool* hidden = nullptr);

}  // namespace drivetrain
