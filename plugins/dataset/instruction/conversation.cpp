#include "conversation.h"

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text/json_line.h>

#include <algorithm>

namespace drivetrain::instruction {
namespace {

const std::string kTheLine = "the line";

// Source: the two prompts of train.py in github.com/tatsu-lab/stanford_alpaca.
constexpr const char* kAlpacaWithInput =
    "Below is an instruction that describes a task, paired with an input that provides further context. "
    "Write a response that appropriately completes the request.\n\n### Instruction:\n";
constexpr const char* kAlpacaWithoutInput =
    "Below is an instruction that describes a task. "
    "Write a response that appropriately completes the request.\n\n### Instruction:\n";
constexpr const char* kAlpacaInput = "\n\n### Input:\n";
constexpr const char* kAlpacaResponse = "\n\n### Response:";

std::string keys_of(const Value& object) {
  std::string keys;
  for (const auto& member : object.members()) keys += concat(keys.empty() ? "" : ", ", '"', member.key, '"');
  return keys.empty() ? "nothing" : keys;
}

// Says nothing: nobody would learn another thing without it.
bool is_empty(const Value& value) {
  return value.is_null() || (value.is_string() && value.as_string().empty()) ||
         (value.is_array() && value.items().empty()) || (value.is_object() && value.members().empty());
}

// An object of which some keys are read; the others are noted.
class Reader {
 public:
  // `of`: "the line", "messages[2]". `prefix`: in front of the keys in the notes.
  Reader(const Value& object, const FieldNames& names, std::string of, std::string prefix)
      : object_(object), names_(names), of_(std::move(of)), prefix_(std::move(prefix)) {
    if (!object.is_object()) throw fail(ErrorCode::config, of_, " is ", object.type_name(), "; wanted an object");
  }

  const Value* find(const std::string& key) {
    used_.insert(key);
    return used_member(object_, key, of_);
  }
  bool has(const std::string& key) const { return object_.find(key) != nullptr; }
  // Null if it is not there or empty.
  const Value* find_filled(const std::string& key) {
    const Value* value = find(key);
    return value && !is_empty(*value) ? value : nullptr;
  }
  const std::string& text(const std::string& key) {
    const Value* value = find(key);
    if (!value)
      throw fail(ErrorCode::config, of_, " has no field \"", key, "\"; it has ", keys_of(object_),
                 ". Set the field names of dataset/instruction to those of the file");
    return text(*value, key);
  }
  const std::string& text(const Value& value, const std::string& key) const {
    if (!value.is_string())
      throw fail(ErrorCode::config, "\"", key, "\" of ", of_, " is ", value.type_name(), "; wanted a text");
    return used_text(value, key, of_);
  }
  const std::string& of() const { return of_; }
  std::vector<std::string> keys() const {
    std::vector<std::string> all;
    for (const Value::Member& member : object_.members()) all.push_back(member.key);
    return all;
  }

  // Adds what was not asked for and is not empty.
  void note_unread(std::vector<std::string>& to) const {
    for (const Value::Member& member : object_.members()) {
      if (used_.contains(member.key) || names_.ignored.contains(member.key) || is_empty(member.value)) continue;
      const std::string name = prefix_ + member.key;
      if (std::find(to.begin(), to.end(), name) == to.end()) to.push_back(name);
    }
  }

 private:
  const Value& object_;
  const FieldNames& names_;
  const std::string of_;
  const std::string prefix_;
  std::set<std::string> used_;
};

// Whether a key of its own says that a message is learned.
std::optional<bool> learned_by_key(Reader& message) {
  std::optional<bool> learned;
  const auto say = [&](bool word, const char* key) {
    if (learned && *learned != word)
      throw fail(ErrorCode::config, "\"", key, "\" of ", message.of(), " says that it is ", word ? "" : "not ",
                 "learned, and another key of it says otherwise");
    learned = word;
  };
  if (const Value* weight = message.find_filled("weight")) {
    const bool is_number = weight->is_number();
    if (!is_number || (weight->as_double() != 0 && weight->as_double() != 1))
      throw fail(
          ErrorCode::config, "\"weight\" of ", message.of(), " is ",
          is_number ? weight->to_json() : weight->type_name(),
          "; wanted 0 (the message is not learned) or 1 (as its role says): there are no weights between\n   ",
          "write 0 or 1 in its place, or leave the key out, which is 1; a line that should count n times stands ",
          "in the file n times");
    if (weight->as_double() == 0) say(false, "weight");
  }
  for (const char* key : {"train", "loss"}) {
    const Value* word = message.find_filled(key);
    if (!word) continue;
    if (!word->is_bool())
      throw fail(ErrorCode::config, "\"", key, "\" of ", message.of(), " is ", word->type_name(),
                 "; wanted true or false: whether the message is learned");
    say(word->as_bool(), key);
  }
  return learned;
}

// Arguments of a call, which OpenAI's files have as a text of JSON and templates want as an object.
Value with_objects(Value calls) {
  if (!calls.is_array()) return calls;
  for (Value& call : calls.items()) {
    const Value* const function = call.find("function");
    const Value* const arguments = function ? function->find("arguments") : nullptr;
    if (!arguments || !arguments->is_string()) continue;
    try {
      const Value object = parse_json_line(arguments->as_string());
      if (!object.is_object()) continue;
      Value changed = *function;
      changed.set("arguments", object);
      call.set("function", std::move(changed));
    } catch (const Error&) {
      continue;  // a text that is no JSON is what the template is given
    }
  }
  return calls;
}

// The content, and what else the template reads. Beside calls there may be no content.
void read_content(Reader& reader, const FieldNames& names, Message& message) {
  if (names.template_reads)
    for (const std::string& key : reader.keys()) {
      if (key == names.role || key == names.content || !names.template_reads(key)) continue;
      if (const Value* value = reader.find_filled(key))
        message.more.set(key, key == "tool_calls" ? with_objects(*value) : *value);
    }
  const Value* const content = reader.find(names.content);
  const bool may_lack = message.more.find("tool_calls") != nullptr;
  if (may_lack && (!content || content->is_null())) {
    message.more.set("content", Value());
  } else if (content && content->is_array() && names.template_reads && names.template_reads("type")) {
    message.more.set("content", *content);
  } else {
    message.content = reader.text(names.content);
  }
}

Message read_message(const Value& value, const FieldNames& names, const std::string& of,
                     std::vector<std::string>& unread) {
  Reader reader(value, names, of, names.messages + "[].");
  Message message{reader.text(names.role), ""};
  read_content(reader, names, message);
  message.learned = learned_by_key(reader);
  if (const auto other = names.roles.find(message.role); other != names.roles.end()) message.role = other->second;
  reader.note_unread(unread);
  return message;
}

void read_messages(const Value& messages, const FieldNames& names, Conversation& to) {
  if (!messages.is_array() || messages.items().empty())
    throw fail(ErrorCode::config, "\"", names.messages, "\" is ",
               messages.is_array() ? "an empty list" : messages.type_name(), "; wanted a list of messages");
  for (const Value& value : messages.items())
    to.messages.push_back(read_message(value, names, concat(names.messages, "[", to.messages.size(), "]"), to.unread));
}

// [["a question", "its answer"], ...], as LLaMA-Factory has it.
void read_history(Reader& line, Conversation& to) {
  const Value* history = line.find_filled("history");
  if (!history) return;
  const auto is_pair = [](const Value& turn) {
    return turn.is_array() && turn.items().size() == 2 && turn.items()[0].is_string() && turn.items()[1].is_string();
  };
  if (!history->is_array() || !std::all_of(history->items().begin(), history->items().end(), is_pair))
    throw fail(ErrorCode::config, "\"history\" of the line is no list of pairs of texts, a user's and an assistant's");
  for (const Value& turn : history->items()) {
    to.messages.push_back({"user", line.text(turn.items()[0], "history")});
    to.messages.push_back({"assistant", line.text(turn.items()[1], "history")});
  }
}

void read_prompt(Reader& line, const FieldNames& names, Conversation& to) {
  to.messages.push_back({"user", line.text(names.prompt)});
  to.messages.push_back({"assistant", line.text(names.response)});
}

void read_alpaca(Reader& line, Conversation& to) {
  const Value* const input = line.find_filled("input");
  std::string prompt = concat(input ? kAlpacaWithInput : kAlpacaWithoutInput, line.text("instruction"));
  if (input) prompt += kAlpacaInput + line.text(*input, "input");
  to.messages.push_back({"user", prompt + kAlpacaResponse});
  to.messages.push_back({"assistant", line.text("output")});
}

// ShareGPT's files are known by their keys: "conversations" of "from" and "value".
FieldNames names_for(const Value& line, const FieldNames& given) {
  const Value* const turns = line.find("conversations");
  if (line.find(given.messages) || given.messages != "messages" || !turns || !turns->is_array()) return given;
  FieldNames names = given;
  names.messages = "conversations";
  const bool is_share_gpt = !turns->items().empty() && turns->items().front().find("from");
  if (!is_share_gpt) return names;
  names.role = "from", names.content = "value";
  for (const std::string role : {"human:user", "gpt:assistant"})
    names.roles.emplace(role.substr(0, role.find(':')), role.substr(role.find(':') + 1));
  return names;
}

void add_system(Reader& line, Conversation& to) {
  const Value* const system = line.find_filled("system");
  if (!system) return;
  if (to.messages.front().role == "system")
    throw fail(ErrorCode::config, "the line has a key \"system\" and a first message of that role; leave one out");
  to.messages.insert(to.messages.begin(), Message{"system", line.text(*system, "system")});
}

}  // namespace

Value messages_value(const Conversation& conversation) {
  Value::Array messages;
  for (const Message& message : conversation.messages) {
    Value one = Value::object();
    one.set("role", message.role);
    one.set("content", message.content);
    if (message.more.is_object())
      for (const Value::Member& member : message.more.members()) one.set(member.key, member.value);
    messages.push_back(std::move(one));
  }
  return Value(std::move(messages));
}

Conversation read_conversation(const Value& value, const FieldNames& given) {
  const FieldNames names = names_for(value, given);
  Reader line(value, names, kTheLine, "");
  Conversation conversation;
  if (const Value* messages = line.find(names.messages)) {
    read_messages(*messages, names, conversation);
  } else if (line.has(names.prompt) || line.has(names.response)) {
    read_history(line, conversation), read_prompt(line, names, conversation);
  } else if (line.has("instruction") && line.has("output")) {
    read_history(line, conversation), read_alpaca(line, conversation);
  } else {
    throw fail(ErrorCode::config, "the line has neither \"", names.messages, "\" nor \"", names.prompt, "\" and \"",
               names.response, "\" nor Alpaca's \"instruction\" and \"output\"; it has ", keys_of(value),
               ". Set the field names of dataset/instruction to those of the file");
  }
  add_system(line, conversation);
  if (names.template_reads && names.template_reads("tools"))
    if (const Value* tools = line.find_filled("tools")) conversation.tools = *tools;
  line.note_unread(conversation.unread);
  return conversation;
}

Conversation parse_conversation(std::string_view line, const FieldNames& names) {
  return read_conversation(parse_json_line(line), names);
}

}  // namespace drivetrain::instruction
