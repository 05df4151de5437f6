#include "jinja_encoder.h"

#include <algorithm>
#include <optional>

#include <drivetrain/error.h>

#include "learned_tokens.h"

namespace drivetrain::instruction {
namespace {

drivetrain::ChatTemplate read(const NamedTemplate& from) { return {from.text, from.where}; }

const NamedTemplate& chosen(const FolderTemplates& templates, const std::string& name, bool with_tools) {
  try {
    return name.empty() ? templates.choose(with_tools) : templates.named(name);
  } catch (const Error& e) {
    throw fail(ErrorCode::config, "dataset/instruction: ", e.what(), "\n   template_name takes one of them");
  }
}

}  // namespace

JinjaEncoder::JinjaEncoder(const Tokenizer& tokenizer, const FolderTemplates& templates, const std::string& name,
                           std::set<std::string> learned, const Value& variables)
    : tokenizer_(tokenizer),
      plain_(read(chosen(templates, name, false))),
      with_tools_(read(chosen(templates, name, true))),
      learned_(std::move(learned)) {
  if (learned_.empty()) throw fail(ErrorCode::config, "dataset/instruction: roles_to_train is empty");
  if (plain_.marks_answers() && (learned_.size() != 1 || !learned_.contains("assistant")))
    throw fail(
        ErrorCode::config, "dataset/instruction: roles_to_train is not [\"assistant\"], and ", plain_.where(),
        " marks by {% generation %} what an assistant says. Leave roles_to_train out, or use a template without marks");
  options_.special_tokens = templates.special_tokens;
  options_.variables = variables;
  look_at_tokens();
  look_at_an_answer();
}

bool JinjaEncoder::reads(const std::string& key) const {
  // Reasoning is given to the template under each of its names.
  for (const char* name : {"reasoning_content", "reasoning", "thinking"})
    if (key == name) return plain_.mentions("reasoning_content") || plain_.mentions("thinking") || plain_.mentions(key);
  return plain_.mentions(key) || with_tools_.mentions(key);
}

void JinjaEncoder::look_at_tokens() {
  for (const std::string_view mark : marks_of(plain_.text())) {
    const bool is_special = mark.starts_with("<|") && mark.ends_with("|>");
    if (is_special) encode_template_text(tokenizer_, mark, unknown_marks_);
  }
  for (const char* name : {"bos_token", "eos_token"})
    if (plain_.mentions(name) && !options_.special_tokens.contains(name)) unnamed_tokens_.push_back(name);
  for (const auto& [name, token] : options_.special_tokens)
    if (plain_.mentions(name)) encode_template_text(tokenizer_, token, unknown_marks_);
}

// How a short conversation begins, and the first special token behind its answer. A template that refuses it tells
// neither.
void JinjaEncoder::look_at_an_answer() {
  const TokenizerFacts facts = tokenizer_.facts();
  try {
    Conversation probe;
    probe.messages = {{"user", "question"}, {"assistant", "answer"}};
    const RenderedChat rendered = render_chat(plain_, messages_value(probe), {}, options_);
    const size_t answer = rendered.text.rfind("answer");
    for (const std::string_view mark : marks_of(rendered.text)) {
      const auto at = static_cast<size_t>(mark.data() - rendered.text.data());
      const std::optional<int32_t> id = tokenizer_.id_of(mark);
      if (id && at == 0 && facts.bos == id) begin_ = {*id};
      if (id && answer != std::string::npos && at > answer && ends_.empty()) ends_ = {*id};
    }
  } catch (const Error&) {
  }
  if (ends_.empty() && facts.eos) ends_ = {*facts.eos};
}

bool JinjaEncoder::is_learned(const Message& message) const {
  return message.learned.value_or(learned_.contains(message.role));
}

JinjaEncoder::Spans JinjaEncoder::marked(const RenderedChat& rendered, const Conversation& conversation) const {
  std::vector<const Message*> answers;
  bool has_keys = false;
  for (const Message& message : conversation.messages) {
    if (message.role == "assistant") answers.push_back(&message);
    has_keys = has_keys || message.learned;
    if (message.role != "assistant" && message.learned.value_or(false))
      throw fail(ErrorCode::config, "a key of a message of \"", message.role, "\" says that it is learned, and ",
                 plain_.where(), " marks only what an assistant says");
  }
  if (!has_keys) return rendered.assistant;
  if (answers.size() != rendered.assistant.size())
    throw fail(ErrorCode::config, "keys of messages say which are learned, and ", plain_.where(), " marks ",
               rendered.assistant.size(), " parts for ", answers.size(),
               " answers, so it is not clear which part is which. Leave the keys out");
  Spans spans;
  for (size_t i = 0; i < answers.size(); ++i)
    if (is_learned(*answers[i])) spans.push_back(rendered.assistant[i]);
  return spans;
}

JinjaEncoder::Spans JinjaEncoder::by_prefixes(const drivetrain::ChatTemplate& chat, const std::string& text,
                                              const Value& messages, const Conversation& conversation) const {
  Spans spans;
  const auto up_to = [&](size_t count, bool prompt) {
    if (count == 0 && !prompt) return std::string();
    ChatOptions options = options_;
    options.add_generation_prompt = prompt;
    const Value::Array first(messages.items().begin(), messages.items().begin() + static_cast<std::ptrdiff_t>(count));
    return render_chat(chat, Value(first), conversation.tools, options).text;
  };
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    if (!is_learned(conversation.messages[i])) continue;
    const bool answers = i > 0 && conversation.messages[i].role == "assistant";
    const std::string before = up_to(i, answers),
                      through = i + 1 < messages.items().size() ? up_to(i + 1, false) : text;
    if (!text.starts_with(before) || !text.starts_with(through) || through.size() < before.size())
      throw fail(
          ErrorCode::config, "where messages[", i, "] stands in the text is not known: ", chat.where(),
          " has no {% generation %} marks and writes the conversation up to that message otherwise than in the ",
          "whole. Put {% generation %} and {% endgeneration %} around what an assistant says, and name the file ",
          "as template_file");
    // Blanks behind the mark that ends an answer are not what a model has to say.
    size_t end = through.size();
    const size_t kept = through.find_last_not_of(" \n") + 1;
    if (kept > before.size() && through[kept - 1] == '>') end = kept;
    spans.push_back({before.size(), end});
  }
  return spans;
}

Encoded JinjaEncoder::in_pieces(const std::string& text, const Spans& learned) const {
  Encoded encoded;
  UnknownMarks unknown;
  size_t done = 0;
  const auto add = [&](size_t end, bool is_learned) {
    const auto ids = encode_template_text(tokenizer_, std::string_view(text).substr(done, end - done), unknown);
    encoded.tokens.insert(encoded.tokens.end(), ids.begin(), ids.end());
    encoded.learned.resize(encoded.tokens.size(), is_learned);
    done = end;
  };
  for (const RenderedChat::Span& span : learned) add(span.begin, false), add(span.end, true);
  add(text.size(), false);
  return encoded;
}

Encoded JinjaEncoder::tokens_of(const std::string& text, const Spans& learned) const {
  UnknownMarks unknown;
  bool hidden = false;
  std::vector<int32_t> ids = encode_template_text(tokenizer_, text, unknown, &hidden);
  auto in_spans = hidden ? std::nullopt : tokens_in_spans(tokenizer_, ids, text, learned);
  if (!in_spans) return in_pieces(text, learned);
  return {std::move(ids), std::move(*in_spans)};
}

Encoded JinjaEncoder::encode(const Conversation& conversation) const {
  const Value messages = messages_value(conversation);
  const drivetrain::ChatTemplate& chat = conversation.tools.is_null() ? plain_ : with_tools_;
  const RenderedChat rendered = render_chat(chat, messages, conversation.tools, options_);
  const Spans learned =
      chat.marks_answers() ? marked(rendered, conversation) : by_prefixes(chat, rendered.text, messages, conversation);
  Encoded encoded = tokens_of(rendered.text, learned);
  if (encoded.learned_positions() == 0)
    throw fail(ErrorCode::config,
               "nothing of the conversation is learned: it has no message of a role in "
               "roles_to_train, or only empty ones, or keys of its messages say that they are not learned");
  return encoded;
}

}  // namespace drivetrain::instruction
