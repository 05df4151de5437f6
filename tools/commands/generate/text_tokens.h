// The tokenizer of `generate`: prompts to tokens, and what is sampled back to text. Main thread.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <drivetrain/model.h>

#include "generate/prompts.h"
#include "internal.h"
#include "shared/open_tokenizer.h"

namespace drivetrain {

// A run's configuration, of its resolved.json; null for a folder that is no run's.
Value run_config(const std::string& folder);

// The tokenizer that --tokenizer names (`named`), else the one that the run's resolved.json records, else what the
// model's folder holds; nothing if there is none of these. Error(config) if it does not fit a model of `vocab_size`
// ids.
DRIVETRAIN_INTERNAL std::optional<OpenedTokenizer> tokenizer_of(const std::string& folder, const std::string& named,
                                                                int64_t vocab_size, const TokenizerReaders& readers);

// How texts of this model begin, and which tokens end them: as the run's data say (begin_tokens, end_tokens of
// resolved.json), as generation_config.json of the model's folder says, or, where there is none, its config.json
// (eos_token_id, one or several), and as the tokenizer's files say.
struct TextEnds {
  std::vector<int32_t> begin;
  std::set<int64_t> ends;
};
DRIVETRAIN_INTERNAL TextEnds text_ends(const std::string& folder, const TokenizerFacts& tokenizer);

// Tokens as they come, as text that can be printed at once: it ends with whole characters.
class DRIVETRAIN_INTERNAL TextStream {
 public:
  // `tokenizer`: null for a model of bytes, whose bytes come as they are.
  TextStream(const Tokenizer* tokenizer, const std::vector<int64_t>& prompt);
  std::string add(int64_t id);
  std::string rest() const;  // bytes that are no whole character

 private:
  const Tokenizer* tokenizer_;
  std::vector<int32_t> ids_;
  std::string text_;
  size_t shown_ = 0;  // bytes of text_
};

// Texts of the model in a folder: through its tokenizer (text_tokens.h: tokenizer_of), else, for a model of bytes, as
// bytes, else as token ids alone.
class DRIVETRAIN_INTERNAL ModelTexts {
 public:
  ModelTexts(const std::string& folder, const std::string& named, const Model& model, const TokenizerReaders& readers);

  const std::optional<OpenedTokenizer>& tokenizer() const { return tokenizer_; }
  // Tokens that may be drawn: those of the tokenizer, which may be fewer than the model's.
  int64_t vocab_size() const { return tokenizer_ ? tokenizer_->facts.vocab_size : vocab_size_; }
  // Whether a text ends with this token. A model of bytes has no such token.
  bool ends(int64_t token) const { return ends_.ends.contains(token); }
  // Of a prompt that is a text, with what texts of this model begin with, or a list of ids. Error(config) for a text
  // without a tokenizer, for one without a token, and for ids that the model does not have.
  std::vector<int64_t> tokens_of(const Prompt& prompt) const;
  // Of a text that a chat template has written, which has its own begin; marks in it are special tokens.
  std::vector<int64_t> tokens_of_written(const std::string& text) const;
  // Behind this prompt. Null where nobody knows what ids stand for.
  std::unique_ptr<TextStream> stream(const std::vector<int64_t>& prompt) const;

 private:
  std::vector<int64_t> ids_of(const Prompt& prompt) const;
  std::vector<int64_t> bytes_of(const std::string& text) const;

  const std::string folder_;
  const std::optional<OpenedTokenizer> tokenizer_;
  const int64_t vocab_size_;
  const bool bytes_;
  TextEnds ends_;
};

}  // namespace drivetrain
