// What texts are to begin with: --prompt, or the lines of --prompts. Any thread.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "internal.h"

namespace drivetrain {

struct Prompt {
  std::string where;          // "--prompt", "prompts.jsonl, line 3"
  Value given;                // a text, or a list of token ids
  Value messages{}, tools{};  // of a conversation; `given` is then null
  bool is_conversation() const { return !messages.is_null(); }
};

// A text of at least one byte.
DRIVETRAIN_INTERNAL Prompt prompt_of_text(const std::string& text, const std::string& where);
// One prompt per line: a text, or, in a file whose name ends with .jsonl, an object with "prompt" (a text or a list of
// token ids) or, for --chat, "messages" and "tools"; other keys are passed over. Error(config) naming the line.
DRIVETRAIN_INTERNAL std::vector<Prompt> read_prompts(const std::string& path, bool chat);

// As --chat has it: a text becomes the message of a user. Error(config) for token ids.
DRIVETRAIN_INTERNAL Prompt as_conversation(Prompt prompt);

}  // namespace drivetrain
