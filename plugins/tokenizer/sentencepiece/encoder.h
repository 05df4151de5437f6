// Texts to ids and back, as Google's library does it with a model. Const calls from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <drivetrain/toolkit/pool.h>

#include "merges.h"
#include "model_file.h"
#include "normalizer.h"
#include "unigram.h"

namespace drivetrain::sentencepiece_models {

class Encoder {
 public:
  // `file`: what messages call it.
  Encoder(ModelFile model, const std::string& file);

  // Valid UTF-8 only. Error(io) for a text that is 2 GiB or more when it is normalised.
  void encode(std::string_view text, std::vector<int32_t>& ids) const;
  void decode(std::span<const int32_t> ids, std::string& text) const;  // Error(config) for an id that is no piece
  std::optional<int32_t> id_of(std::string_view piece) const;
  std::optional<int32_t> control(const std::string& piece) const;  // the id of a piece that no text has
  const ModelFile& model() const { return model_; }

 private:
  struct Workspace {
    std::string normalized;
    std::vector<Unigram::Best> best;
    Merges::Workspace merges;
  };
  void encode_words(std::string_view text, std::vector<int32_t>& ids) const;  // of a model of type word
  void append_piece(const Piece& piece, bool first, std::string& text) const;

  const ModelFile model_;
  const std::string file_;
  const Trie user_defined_, none_;
  std::unordered_map<std::string_view, int32_t> ids_;
  const Normalizer normalizer_;
  std::optional<Normalizer> denormalizer_;
  std::optional<Unigram> unigram_;  // one of these two, or neither
  std::optional<Merges> merges_;
  mutable Pool<Workspace> work_;
};

}  // namespace drivetrain::sentencepiece_models
