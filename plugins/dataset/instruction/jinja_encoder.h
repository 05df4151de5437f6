// Conversations to tokens by a chat template in Jinja: the text as a whole, and of it what an assistant says. Const
// calls from any thread.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <drivetrain/toolkit/chat/chat_template.h>
#include <drivetrain/toolkit/chat/chat_template_files.h>

#include "encoder.h"

namespace drivetrain::instruction {

class JinjaEncoder : public ConversationEncoder {
 public:
  // `name` of one of the templates; empty: as transformers chooses. `learned`: roles whose messages are labels.
  // Error(config) for a template that does not parse.
  JinjaEncoder(const Tokenizer& tokenizer, const FolderTemplates& templates, const std::string& name,
               std::set<std::string> learned, const Value& variables);

  Encoded encode(const Conversation& conversation) const override;
  const std::vector<int32_t>& begin() const override { return begin_; }
  std::vector<int32_t> ends() const override { return ends_; }
  bool reads(const std::string& key) const override;

  const std::string& where() const { return plain_.where(); }
  bool marks_answers() const { return plain_.marks_answers(); }
  // Marks of the template that are no tokens of the tokenizer, and special tokens that it writes and nobody names.
  const UnknownMarks& unknown_marks() const { return unknown_marks_; }
  const std::vector<std::string>& unnamed_tokens() const { return unnamed_tokens_; }

 private:
  using Spans = std::vector<RenderedChat::Span>;
  bool is_learned(const Message& message) const;
  // The spans of the text that are learned.
  Spans marked(const RenderedChat& rendered, const Conversation& conversation) const;
  Spans by_prefixes(const drivetrain::ChatTemplate& chat, const std::string& text, const Value& messages,
                    const Conversation& conversation) const;
  Encoded tokens_of(const std::string& text, const Spans& learned) const;
  Encoded in_pieces(const std::string& text, const Spans& learned) const;
  void look_at_tokens();
  void look_at_an_answer();

  const Tokenizer& tokenizer_;
  const drivetrain::ChatTemplate plain_, with_tools_;
  const std::set<std::string> learned_;
  ChatOptions options_;
  UnknownMarks unknown_marks_;
  std::vector<std::string> unnamed_tokens_;
  std::vector<int32_t> begin_, ends_;
};

}  // namespace drivetrain::instruction
