// Conversations to tokens. Const calls from any thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <drivetrain/tokenizer.h>

#include "chat_template.h"
#include "conversation.h"

namespace drivetrain::instruction {

struct Encoded {
  std::vector<int32_t> tokens;
  std::vector<char> learned;  // of each token: whether it is a label
  // Number of positions: each token but the last, with the next one as its label.
  int64_t positions() const { return static_cast<int64_t>(tokens.size()) - 1; }
  int64_t learned_positions() const;  // those whose label counts
};

class Encoder {
 public:
  // `tokenizer` outlives it. `learned`: roles whose messages are labels, with their suffix. Error(config) for one that
  // the template does not have.
  Encoder(const Tokenizer& tokenizer, ChatTemplate chat, std::set<std::string> learned);

  // Each text of the template and of the conversation is encoded by itself, so that a response's tokens do not depend
  // on what stands before it. Error(config) for a role that the template does not have, and for a conversation in
  // which nothing is learned.
  Encoded encode(const std::vector<Message>& conversation) const;

 private:
  void append(const std::string& text, bool learned, Encoded& to) const;
  void append(const Message& message, Encoded& to) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate chat_;
  const std::set<std::string> learned_;
};

}  // namespace drivetrain::instruction
