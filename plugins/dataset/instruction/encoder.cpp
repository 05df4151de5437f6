#include "encoder.h"

#include <drivetrain/error.h>

#include <algorithm>
#include <optional>

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
  const auto ids = [&](const std::string& text) { return encode_template_text(tokenizer_, text, unknown_marks_); };
  bos_ = chat_.bos ? ids(*chat_.bos) : tokenizer_.facts().prefix, eos_ = ids(chat_.eos),
  separator_ = ids(chat_.separator);
  for (const auto& [name, role] : chat_.roles) roles_[name] = {ids(role.prefix), ids(role.suffix)};
}

std::vector<int32_t> Encoder::ends() const {
  std::vector<int32_t> ends;
  const auto add = [&](const std::string& text) {
    for (const std::string_view mark : marks_of(text)) {
      const std::optional<int32_t> id = tokenizer_.id_of(mark);
      if (!id) continue;
      if (std::find(ends.begin(), ends.end(), *id) == ends.end()) ends.push_back(*id);
      return true;
    }
    return false;
  };
  bool all_end = true;
  for (const std::string& role : learned_) all_end = add(chat_.roles.at(role).suffix) && all_end;
  if (!all_end) add(chat_.eos);
  return ends;
}

void Encoder::append(const std::vector<int32_t>& ids, bool learned, Encoded& to) {
  to.tokens.insert(to.tokens.end(), ids.begin(), ids.end());
  to.learned.resize(to.tokens.size(), learned);
}

bool Encoder::is_learned(const Message& message) const {
  return message.learned.value_or(learned_.contains(message.role));
}

void Encoder::append(const Message& message, Encoded& to) const {
  const auto role = roles_.find(message.role);
  if (role == roles_.end())
    throw fail(ErrorCode::config, "a message has the role \"", message.role, "\", the template has the roles ",
               chat_.role_names(), ". Add it to the template, or name what it stands for in role_names");
  const bool learned = is_learned(message);
  append(role->second.prefix, false, to);
  if (!message.content.empty()) tokenizer_.encode(message.content, to.tokens);
  to.learned.resize(to.tokens.size(), learned);
  append(role->second.suffix, learned, to);
}

Encoded Encoder::encode(const std::vector<Message>& conversation) const {
  Encoded encoded;
  append(bos_, false, encoded);
  if (chat_.system && conversation.front().role != "system") {
    append(Message{"system", *chat_.system}, encoded);
    append(separator_, false, encoded);
  }
  for (size_t i = 0; i < conversation.size(); ++i) {
    if (i > 0) append(separator_, false, encoded);
    append(conversation[i], encoded);
  }
  append(eos_, is_learned(conversation.back()), encoded);
  if (encoded.learned_positions() == 0)
    throw fail(ErrorCode::config,
               "nothing of the conversation is learned: it has no message of a role in "
               "roles_to_train, or only empty ones, or keys of its messages say that they are not learned");
  return encoded;
}

}  // namespace drivetrain::instruction
