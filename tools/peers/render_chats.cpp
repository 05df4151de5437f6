// Conversations written by chat templates, for tools/peers/chat_counts.py: a JSON object per line of the input, with
// "template", "messages", "tools", "add_generation_prompt", "variables" and "tokens", is answered by a line with "text"
// and "assistant", or with "error".
#include <iostream>
#include <string>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/chat/chat_template.h>
#include <drivetrain/toolkit/text/json_line.h>

namespace drivetrain {
namespace {

Value null_or(const Value* value) { return value ? *value : Value(); }

Value answer(const Value& of) {
  Value found = Value::object();
  try {
    ChatOptions options;
    options.add_generation_prompt = of.find("add_generation_prompt")->as_bool();
    options.variables = null_or(of.find("variables"));
    for (const Value::Member& token : of.find("tokens")->members())
      options.special_tokens[token.key] = token.value.as_string();
    options.now.emplace();
    options.now->tm_year = 126, options.now->tm_mon = 10, options.now->tm_mday = 28;
    const ChatTemplate chat(of.find("template")->as_string(), "template");
    const RenderedChat made = render_chat(chat, *of.find("messages"), null_or(of.find("tools")), options);
    Value::Array spans;
    for (const auto& [begin, end] : made.assistant)
      spans.push_back(Value::Array{static_cast<int64_t>(begin), static_cast<int64_t>(end)});
    found.set("text", made.text);
    found.set("assistant", std::move(spans));
  } catch (const Error& e) {
    found.set("error", e.what());
  }
  return found;
}

}  // namespace
}  // namespace drivetrain

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << drivetrain::answer(drivetrain::parse_json_line(line)).to_json() << '\n';
}
