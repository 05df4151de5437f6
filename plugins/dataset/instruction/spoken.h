// What the start of a run says of conversations beside their figures: what is not learned from them, and why. Main
// thread.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/log.h>
#include <drivetrain/tokenizer.h>

#include "conversations.h"
#include "jinja_encoder.h"

namespace drivetrain::instruction {

// The folders of a tokenizer's files, each once.
std::vector<std::string> folders_of(const TokenizerFacts& tokenizer);

// A line for each key that changes what others learn from such a line, and one for all others.
void say_unread_keys(const Figures& figures, const FieldNames& names, Log& log);
// Tokens that the tokenizer's own files put in front of every conversation. `from_template`: the template says it.
void say_begin(const TokenizerFacts& tokenizer, bool from_template, Log& log);
void say_unknown_marks(const UnknownMarks& marks, const std::string& tokenizer, Log& log);
// Which template in Jinja is used, how answers are found in its texts, and what of its tokens is missing.
void say_template(const JinjaEncoder& encoder, const std::string& tokenizer, Log& log);
// A chat template that lies beside the tokenizer's files and is not used.
void say_other_template(const TokenizerFacts& tokenizer, Log& log);

}  // namespace drivetrain::instruction
