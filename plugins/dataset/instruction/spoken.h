// What the start of a run says of conversations beside their figures: what is not learned from them, and why. Main
// thread.
#pragma once

#include <string>

#include <drivetrain/log.h>
#include <drivetrain/tokenizer.h>

#include "conversations.h"

namespace drivetrain::instruction {

// A line for each key that changes what others learn from such a line, and one for all others.
void say_unread_keys(const Figures& figures, const FieldNames& names, Log& log);
// Tokens that the tokenizer's own files put in front of every conversation. `from_template`: the template says it.
void say_begin(const TokenizerFacts& tokenizer, bool from_template, Log& log);
void say_unknown_marks(const UnknownMarks& marks, const std::string& tokenizer, Log& log);
// The chat template that lies beside the tokenizer's files is a program in Jinja, which is not run.
void say_other_template(const TokenizerFacts& tokenizer, Log& log);

}  // namespace drivetrain::instruction
