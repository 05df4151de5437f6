// A text of a chat template as tokens. Marks in it, such as <|im_end|> or </s>, are meant as special tokens. Thread:
// any.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <drivetrain/tokenizer.h>

namespace drivetrain::instruction {

// What looks like a special token and is none of the vocabulary, with the number of tokens that its text becomes.
using UnknownMarks = std::map<std::string, int64_t>;

// <NAME> without blanks, front to back.
std::vector<std::string_view> marks_of(std::string_view text);

// A mark that is a token becomes this token, even where the tokenizer finds it in no text: so SentencePiece treats its
// control tokens. The texts between such marks are encoded by themselves.
std::vector<int32_t> encode_template_text(const Tokenizer& tokenizer, std::string_view text, UnknownMarks& unknown);

}  // namespace drivetrain::instruction
