// One line of a file of conversations. Value types; any thread.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <drivetrain/value.h>

namespace drivetrain::instruction {

struct Message {
  std::string role, content;
  std::optional<bool> learned = std::nullopt;  // by a key of its own; nothing: its role says so
};

// Keys of a line's object.
struct FieldNames {
  std::string messages = "messages", role = "role", content = "content";
  std::string prompt = "prompt", response = "response";
  std::map<std::string, std::string> roles;  // other names of roles: "human" is "user"
  std::set<std::string> ignored;             // keys that may be there without a word
};

struct Conversation {
  std::vector<Message> messages;  // at least one
  // Keys that are there, say something and were not read, each once: "tools" of the line, "messages[].tool_calls".
  std::vector<std::string> unread;
};

// From {"messages": [{"role": ..., "content": ...}, ...]}, from {"prompt": ..., "response": ...} as a message of
// "user" and one of "assistant", or from Alpaca's {"instruction": ..., "input": ..., "output": ...}; line_keys.h has
// all keys. Error(config) saying what is missing and what is there.
Conversation read_conversation(const Value& line, const FieldNames& names);
Conversation parse_conversation(std::string_view line, const FieldNames& names);  // of a JSON text; Error(io) for none

}  // namespace drivetrain::instruction
