// Conversations to tokens. Const calls from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <drivetrain/tokenizer.h>
#include <drivetrain/toolkit/chat/template_text.h>

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

// What makes tokens of conversations.
class ConversationEncoder {
 public:
  virtual ~ConversationEncoder() = default;
  // Error(config) for what the template refuses, and for a conversation in which nothing is learned.
  virtual Encoded encode(const Conversation& conversation) const = 0;
  // The tokens in front of every conversation.
  virtual const std::vector<int32_t>& begin() const = 0;
  // The special tokens that end an answer.
  virtual std::vector<int32_t> ends() const = 0;
  // Whether a key of a line or of a message beyond role and content can change the text.
  virtual bool reads(const std::string& key) const = 0;
};

// By a template that is data.
class Encoder : public ConversationEncoder {
 public:
  // `tokenizer` outlives it. `learned`: roles whose messages are labels, with their suffix. Error(config) for one that
  // the template does not have.
  Encoder(const Tokenizer& tokenizer, ChatTemplate chat, std::set<std::string> learned);

  // Each text of the template and of the conversation is encoded by itself, so that a response's tokens do not depend
  // on what stands before it. Error(config) for a role that the template does not have, and for a conversation in
  // which nothing is learned.
  Encoded encode(const std::vector<Message>& conversation) const;
  Encoded encode(const Conversation& conversation) const override { return encode(conversation.messages); }

  const std::vector<int32_t>& begin() const override { return bos_; }
  // Of what is learned, the special tokens that end an answer: the first mark in the suffix of each learned role, or in
  // the template's eos.
  std::vector<int32_t> ends() const override;
  bool reads(const std::string&) const override { return false; }

  // Of all texts of the template.
  const UnknownMarks& unknown_marks() const { return unknown_marks_; }

 private:
  struct Role {
    std::vector<int32_t> prefix, suffix;
  };
  static void append(const std::vector<int32_t>& ids, bool learned, Encoded& to);
  void append(const Message& message, Encoded& to) const;
  bool is_learned(const Message& message) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate chat_;
  const std::set<std::string> learned_;
  UnknownMarks unknown_marks_;
  std::vector<int32_t> bos_, eos_, separator_;
  std::map<std::string, Role> roles_;
};

}  // namespace drivetrain::instruction
