#include "generate/prompts.h"

#include <algorithm>
#include <fstream>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text/json_line.h>

#include "base/printable.h"

namespace drivetrain {
namespace {

Error wrong_line(const std::string& where, const std::string& found, bool chat) {
  return fail(ErrorCode::config, where, ": wanted an object with \"prompt\", a text or a list of token ids",
              chat ? ", or \"messages\", a list of messages" : "", "; found ", found);
}

bool is_ids(const Value& value) {
  return value.is_array() && std::all_of(value.items().begin(), value.items().end(),
                                         [](const Value& id) { return id.is_int() && id.as_int() >= 0; });
}

Prompt prompt_of_object(const Value& line, const std::string& where, bool chat) {
  if (!line.is_object()) throw wrong_line(where, line.type_name(), chat);
  const Value* const messages = used_member(line, "messages", "the line");
  if (messages && !chat)
    throw fail(ErrorCode::config, where, ": \"messages\" are written as a text by the model's chat template\n   ",
               "add --chat");
  if (messages) {
    if (!messages->is_array() || messages->items().empty())
      throw fail(ErrorCode::config, where, ": \"messages\": wanted a list of messages, found ",
                 messages->is_array() ? "an empty one" : messages->type_name());
    const Value* const tools = used_member(line, "tools", "the line");
    return {where, {}, *messages, tools ? *tools : Value()};
  }
  const Value* const prompt = used_member(line, "prompt", "the line");
  if (prompt && prompt->is_string()) return prompt_of_text(used_text(*prompt, "prompt", "the line"), where);
  if (!prompt || !is_ids(*prompt)) throw wrong_line(where, prompt ? prompt->type_name() : "no such key", chat);
  if (prompt->items().empty()) throw fail(ErrorCode::config, where, ": the prompt has no token; give at least one");
  return {where, *prompt};
}

}  // namespace

Prompt prompt_of_text(const std::string& text, const std::string& where) {
  if (text.empty())
    throw fail(ErrorCode::config, "generate: ", where, where.starts_with("--") ? " wants" : ": wanted",
               " a prompt of at least one byte");
  return {where, text};
}

std::vector<Prompt> read_prompts(const std::string& path, bool chat) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw fail(ErrorCode::config, "--prompts ", one_line(path), ": there is no such file that can be read");
  const bool json = path.ends_with(".jsonl");
  std::vector<Prompt> prompts;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    const std::string where = concat(one_line(path), ", line ", number);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!json) {
      prompts.push_back(prompt_of_text(line, where));
    } else if (!is_blank_line(line)) {
      try {
        prompts.push_back(prompt_of_object(parse_json_line(line), where, chat));
      } catch (const Error& e) {
        if (e.code() != ErrorCode::io) throw;
        throw fail(ErrorCode::config, where, ", ", e.what());
      }
    }
  }
  if (prompts.empty()) throw fail(ErrorCode::config, "--prompts ", one_line(path), ": the file holds no prompt");
  return prompts;
}

Prompt as_conversation(Prompt prompt) {
  if (prompt.is_conversation()) return prompt;
  if (!prompt.given.is_string())
    throw fail(ErrorCode::config, prompt.where, ": a chat template writes texts, and this prompt is a list of token ",
               "ids\n   give a text or \"messages\", or leave out --chat");
  prompt.messages = Value::Array{Value::Object{{"role", "user"}, {"content", prompt.given}}};
  return prompt;
}

}  // namespace drivetrain
