// How a conversation is written as one text, as data: texts before and after each message by its role. Value type.
#pragma once

#include <map>
#include <optional>
#include <string>

#include <drivetrain/value.h>

namespace drivetrain::instruction {

struct ChatTemplate {
  struct Role {
    std::string prefix, suffix;
  };
  std::optional<std::string> bos;     // before the first message; nothing: what the tokenizer puts in front of texts
  std::string eos;                    // after the last
  std::string separator;              // between two messages
  std::optional<std::string> system;  // the content of a first message of role "system" where a conversation has none
  std::map<std::string, Role> roles;

  // "user, assistant": for messages.
  std::string role_names() const;
};

// Null: ChatML. Error(config) naming what is wrong and where.
ChatTemplate read_template(const Value& value);

}  // namespace drivetrain::instruction
