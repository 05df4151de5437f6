#include <drivetrain/toolkit/chat/chat_template.h>

#include <drivetrain/error.h>

#include "jinja_run.h"

namespace drivetrain {
namespace {

// Names under which reasoning is given; the first is the one that most templates read.
constexpr const char* kReasoning[] = {"reasoning_content", "thinking", "reasoning"};

// A key that is null counts as one that is not there, as apply_chat_template of transformers 5 has it: a template that
// adds up texts would write "None". Then its _alias_reasoning_fields.
jinja::Var with_reasoning(jinja::Var message) {
  const jinja::Dict* const whole = message.get<jinja::Dict>();
  if (!whole) throw fail(ErrorCode::config, "a message is ", message.type_name(), "; wanted an object");
  jinja::Dict filled = *whole;
  std::erase_if(filled.members, [](const auto& member) { return member.second.is_none(); });
  message = std::move(filled);
  const jinja::Dict* const dict = message.get<jinja::Dict>();
  for (const char* const name : kReasoning) {
    const jinja::Var* const found = dict->find(name);
    if (!found || found->is_none()) continue;
    jinja::Dict more = *dict;
    if (!more.find("thinking")) more.members.emplace(more.members.begin(), "thinking", *found);
    more.set("reasoning_content", *found);
    return more;
  }
  return message;
}

jinja::Var conversation(const Value& messages) {
  if (!messages.is_array()) throw fail(ErrorCode::config, "the messages are ", messages.type_name(), "; wanted a list");
  jinja::List list;
  for (const Value& message : messages.items()) list.items.push_back(with_reasoning(jinja::from_json(message)));
  return list;
}

}  // namespace

ChatTemplate::ChatTemplate(const std::string& text, std::string where) : where_(std::move(where)), text_(text) {
  auto program = std::make_shared<jinja::Program>(jinja::parse(text_, where_));
  names_ = program->names;
  marks_answers_ = program->has_generation;
  program_ = std::move(program);
}

RenderedChat render_chat(const ChatTemplate& chat, const Value& messages, const Value& tools,
                         const ChatOptions& options) {
  auto globals = jinja::global_functions(options.now ? &*options.now : nullptr);
  globals["messages"] = conversation(messages);
  globals["tools"] = jinja::from_json(tools);
  globals["documents"] = jinja::Var();
  globals["add_generation_prompt"] = options.add_generation_prompt;
  for (const auto& [name, token] : options.special_tokens) globals[name] = token;
  if (options.variables.is_object())
    for (const Value::Member& member : options.variables.members())
      globals[member.key] = jinja::from_json(member.value);
  jinja::Interpreter run(std::move(globals));
  try {
    run.run(chat.program());
  } catch (const jinja::Problem& problem) {
    throw fail(ErrorCode::config, chat.where(), ", line ", run.line(), ": ", problem.what);
  }
  RenderedChat rendered{std::move(run.text), {}};
  for (const auto& [begin, end] : run.answers) rendered.assistant.push_back({begin, end});
  return rendered;
}

}  // namespace drivetrain
