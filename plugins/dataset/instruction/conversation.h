// One line of a file of conversations. Value types; any thread.
#pragma once

#include <functional>
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
  // Further keys that a chat template in Jinja reads, and "content" where it is no text.
  Value more = {};
};

// Keys of a line's object.
struct FieldNames {
  std::string messages = "messages", role = "role", content = "content";
  std::string prompt = "prompt", response = "response";
  std::map<std::string, std::string> roles;  // other names of roles: "human" is "user"
  std::set<std::string> ignored;             // keys that may be there without a word
  // Whether the chat template can read a key of a line or of a message; empty: it reads none but role and content.
  std::function<bool(const std::string&)> template_reads;
};

struct Conversation {
  std::vector<Message> messages;  // at least one
  Value tools;                    // null: none, or the template reads none
  // Keys that are there, say something and were not read, each once: "tools" of the line, "messages[].tool_calls".
  std::vector<std::string> unread;
};

// The messages as a chat template in Jinja sees them: role, content and what else it reads.
Value messages_value(const Conversation& conversation);

// From {"messages": [{"role": ..., "content": ...}, ...]}, from {"prompt": ..., "response": ...} as a message of
// "user" and one of "assistant", or from Alpaca's {"instruction": ..., "input": ..., "output": ...}; line_keys.h has
// all keys. Error(config) saying what is missing and what is there.
Conversation read_conversation(const Value& line, const FieldNames& names);
Conversation parse_conversation(std::string_view line, const FieldNames& names);  // of a JSON text; Error(io) for none

}  // namespace drivetrain::instruction
