// Which template writes the conversations: the options' own words, the tokenizer's or a file's in Jinja. Main thread.
#pragma once

#include <memory>
#include <set>
#include <string>

#include <drivetrain/log.h>
#include <drivetrain/tokenizer.h>

#include "encoder.h"

namespace drivetrain::instruction {

struct TemplateChoice {
  Value chat_template;     // null, "chatml", "tokenizer", or texts by role
  std::string file, name;  // of templates in Jinja
  Value variables;         // of a template in Jinja
  std::set<std::string> learned;
};

// Whether the choice is of a template in Jinja. Error(config) for options that exclude each other.
bool is_jinja(const TemplateChoice& choice);

// Makes the encoder and says what is to be known about it. `type` of the tokenizer, which outlives it. Error(config)
// where there is no such template or it does not parse.
std::unique_ptr<const ConversationEncoder> make_encoder(const Tokenizer& tokenizer, const std::string& type,
                                                        const TemplateChoice& choice, Log& log);

}  // namespace drivetrain::instruction
