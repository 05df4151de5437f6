#include "encoder.h"

#include <drivetrain/error.h>

#include <algorithm>

namespace drivetrain::instruction {

int64_t Encoded::learned_positions() const {
  return learned.empty() ? 0 : std::count(learned.begin() + 1, learned.end(), 1);
}

Encoder::Encoder(const Tokenizer& tokenizer, ChatTemplate chat, std::set<std::string> learned)
    : tokenizer_(tokenizer), chat_(std::move(chat)), learned_(std::move(learned)) {
  for (const std::string& role : learned_)
    if (!chat_.roles.contains(role))
      throw fail(ErrorCode::config, "dataset/instruction: roles_to_train has \"", role,
                 "\", the template has the roles ", chat_.role_names());
  if (learned_.empty()) throw fail(ErrorCode::config, "dataset/instruction: roles_to_train is empty");
}

void Encoder::append(const std::string& text, bool learned, Encoded& to) const {
  if (text.empty()) return;
  tokenizer_.encode(text, to.tokens);
  to.learned.resize(to.tokens.size(), learned);
}

void Encoder::append(const Message& message, Encoded& to) const {
  const auto role = chat_.roles.find(message.role);
  if (role == chat_.roles.end())
    throw fail(ErrorCode::config, "a message has the role \"", message.role, "\", the template has the roles ",
               chat_.role_names(), ". Add it to the template, or name what it stands for in role_names");
  const bool learned = learned_.contains(message.role);
  append(role->second.prefix, false, to);
  append(message.content, learned, to);
  append(role->second.suffix, learned, to);
}

Encoded Encoder::encode(const std::vector<Message>& conversation) const {
  Encoded encoded;
  append(chat_.bos, false, encoded);
  if (chat_.system && conversation.front().role != "system") {
    append(Message{"system", *chat_.system}, encoded);
    append(chat_.separator, false, encoded);
  }
  for (size_t i = 0; i < conversation.size(); ++i) {
    if (i > 0) append(chat_.separator, false, encoded);
    append(conversation[i], encoded);
  }
  append(chat_.eos, learned_.contains(conversation.back().role), encoded);
  if (encoded.learned_positions() == 0)
    throw fail(ErrorCode::config,
               "nothing of the conversation is learned: it has no message of a role in "
               "roles_to_train, or only empty ones");
  return encoded;
}

}  // namespace drivetrain::instruction
