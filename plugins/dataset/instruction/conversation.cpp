#include "conversation.h"

#include <drivetrain/error.h>

namespace drivetrain::instruction {
namespace {

std::string keys_of(const Value& object) {
  std::string keys;
  for (const auto& member : object.members()) keys += concat(keys.empty() ? "" : ", ", '"', member.key, '"');
  return keys.empty() ? "nothing" : keys;
}

// `of`: "the line", "messages[2]".
const std::string& text_field(const Value& object, const std::string& key, const std::string& of) {
  const Value* value = object.find(key);
  if (!value)
    throw fail(ErrorCode::config, of, " has no field \"", key, "\"; it has ", keys_of(object),
               ". Set the field names of dataset/instruction to those of the file");
  if (!value->is_string())
    throw fail(ErrorCode::config, "\"", key, "\" of ", of, " is ", value->type_name(), "; wanted a text");
  return value->as_string();
}

Message read_message(const Value& value, const FieldNames& names, const std::string& of) {
  if (!value.is_object()) throw fail(ErrorCode::config, of, " is ", value.type_name(), "; wanted an object");
  Message message{text_field(value, names.role, of), text_field(value, names.content, of)};
  if (const auto other = names.roles.find(message.role); other != names.roles.end()) message.role = other->second;
  return message;
}

}  // namespace

std::vector<Message> read_conversation(const Value& line, const FieldNames& names) {
  if (!line.is_object()) throw fail(ErrorCode::config, "the line is ", line.type_name(), "; wanted an object");
  const Value* messages = line.find(names.messages);
  if (!messages) {
    if (!line.find(names.prompt) && !line.find(names.response))
      throw fail(ErrorCode::config, "the line has neither \"", names.messages, "\" nor \"", names.prompt, "\" and \"",
                 names.response, "\"; it has ", keys_of(line),
                 ". Set the field names of dataset/instruction to those of the file");
    return {{"user", text_field(line, names.prompt, "the line")},
            {"assistant", text_field(line, names.response, "the line")}};
  }
  if (!messages->is_array() || messages->items().empty())
    throw fail(ErrorCode::config, "\"", names.messages, "\" is ",
               messages->is_array() ? "an empty list" : messages->type_name(), "; wanted a list of messages");
  std::vector<Message> conversation;
  for (const Value& value : messages->items())
    conversation.push_back(read_message(value, names, concat(names.messages, "[", conversation.size(), "]")));
  return conversation;
}

Value parse_line(const std::string& line) {
  const std::string file = "<line>";  // in messages: "<line>:1:COLUMN"
  try {
    return parse_json(line, file);
  } catch (const Error& e) {
    std::string text = e.what();
    const std::string place = file + ":1:";
    for (size_t at; (at = text.find(place)) != std::string::npos;) text.replace(at, place.size(), "column ");
    throw fail(ErrorCode::io, text);
  }
}

}  // namespace drivetrain::instruction
