// One line of a file of conversations. Value types; any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <drivetrain/value.h>

namespace drivetrain::instruction {

struct Message {
  std::string role, content;
};

// Keys of a line's object.
struct FieldNames {
  std::string messages = "messages", role = "role", content = "content";
  std::string prompt = "prompt", response = "response";
  std::map<std::string, std::string> roles;  // other names of roles: "human" is "user"
};

// From {"messages": [{"role": ..., "content": ...}, ...]}, or from {"prompt": ..., "response": ...} as a message of
// "user" and one of "assistant". Error(config) saying what is missing and what is there.
std::vector<Message> read_conversation(const Value& line, const FieldNames& names);

// A JSON text of one line. Error(io) if it is none, with the column.
Value parse_line(const std::string& line);

}  // namespace drivetrain::instruction
