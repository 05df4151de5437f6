// Texts as tokens of a model, for evaluations: by a tokenizer that options name, or as bytes where the tokens of the
// model are bytes. Thread: constructed on main; const calls from any.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <drivetrain/options.h>
#include <drivetrain/plan_context.h>
#include <drivetrain/tokenizer.h>

namespace drivetrain {

struct Services;

// Options of an evaluation that reads texts.
struct TokenizerOptions {
  std::optional<PluginChoice> tokenizer;  // nothing: bytes
  std::string folder;                     // of the tokenizer's files, where its own options do not say it
};

// Whether tokens 0 to 255 of the model are bytes, as Model::byte_vocabulary has it.
bool is_byte_vocabulary(const ModelFacts& model);

class TextCodec {
 public:
  // `owner`: "evaluation/NAME", for messages. Error(config) if texts cannot be encoded for this model.
  TextCodec(const std::string& owner, const TokenizerOptions& options, const ModelFacts& model,
            const Services& services);

  std::vector<int32_t> encode(std::string_view text) const;
  // What stands in front of a text so that its first token is predicted too; nothing: there is no such token.
  std::optional<int32_t> begin() const { return begin_; }
  // Bytes of text that these tokens stand for behind the token `before`: some tokenizers give the first token of a text
  // another text. Those that mark the begin or end of a text or fill a row stand for none, however they are spelled.
  int64_t bytes_of(std::span<const int32_t> ids, std::optional<int32_t> before = {}) const;

 private:
  int64_t decoded(std::span<const int32_t> ids) const;

  std::shared_ptr<const Tokenizer> tokenizer_;  // null: bytes
  std::optional<int32_t> begin_;
  std::vector<int32_t> marks_;  // no text
};

}  // namespace drivetrain
