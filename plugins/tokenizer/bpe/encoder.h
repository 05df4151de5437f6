// Texts to tokens and back, as Hugging Face's tokenizers do it with what the files of a tokenizer say.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <drivetrain/toolkit/pool.h>

#include "definition.h"

namespace drivetrain::bpe {

// Const calls from any thread.
class Encoder {
 public:
  explicit Encoder(Definition definition);

  void encode(std::string_view text, std::vector<int32_t>& ids) const;
  void decode(std::span<const int32_t> ids, std::string& text) const;  // Error(config) for an id that is no token
  std::optional<int32_t> id_of(std::string_view token) const;
  bool is_added(int32_t id) const;  // found in texts as a whole
  int64_t vocab_size() const { return static_cast<int64_t>(bytes_.size()); }
  bool nfc() const { return nfc_; }

 private:
  // What one call of encode uses. Calls at the same time have one each.
  struct Workspace {
    Merges::Workspace merges;
    std::string replaced, normalized, part;
    std::vector<TokenFinder::Part> parts, inner_parts;
  };
  void encode_text(std::string_view text, bool begins, Workspace& work, std::vector<int32_t>& ids) const;
  void encode_words(std::string_view text, bool begins, Workspace& work, std::vector<int32_t>& ids) const;
  std::string_view normalized(std::string_view text, std::string& buffer) const;
  std::unique_ptr<TokenFinder> finder(bool in_normalized) const;
  std::optional<std::string> bytes_of(const std::string& token) const;  // that it stands for, where it is spelled so

  const std::vector<AddedToken> added_;
  const bool nfc_;
  const std::optional<Blanks> blanks_;
  bool by_words_ = false;                          // of a vocabulary of characters: words are merged by themselves
  TokenIds names_;                                 // as the files spell them
  std::vector<std::optional<std::string>> bytes_;  // by id: what it decodes to
  std::unique_ptr<Merges> merges_;
  const Pieces pieces_;
  std::unique_ptr<TokenFinder> in_text_, in_normalized_;
  mutable Pool<Workspace> work_;
};

}  // namespace drivetrain::bpe
