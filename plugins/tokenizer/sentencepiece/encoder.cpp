#include "encoder.h"

#include <algorithm>
#include <limits>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text/utf8.h>

namespace drivetrain::sentencepiece_models {
namespace {

Trie user_defined_of(const ModelFile& model) {
  Trie::Texts texts;
  for (size_t id = 0; id < model.pieces.size(); ++id)
    if (model.pieces[id].type == PieceType::user_defined)
      texts.emplace_back(model.pieces[id].text, static_cast<int32_t>(id));
  return Trie(std::move(texts));
}

// Every byte that is no part of a character becomes U+FFFD.
void append_characters(std::string_view bytes, std::string& text) {
  for (;;) {
    const size_t valid = valid_utf8(bytes);
    text += bytes.substr(0, valid);
    if (valid == bytes.size()) return;
    text += "\uFFFD";
    bytes.remove_prefix(valid + 1);
  }
}

}  // namespace

Encoder::Encoder(ModelFile model, const std::string& file)
    : model_(std::move(model)),
      file_(file),
      user_defined_(user_defined_of(model_)),
      none_(Trie::Texts()),
      normalizer_(model_.normalizer, model_.treat_whitespace_as_suffix, user_defined_, file) {
  if (model_.denormalizer && !model_.denormalizer->rules.empty())
    denormalizer_.emplace(*model_.denormalizer, false, none_, file);
  for (size_t id = 0; id < model_.pieces.size(); ++id) ids_.emplace(model_.pieces[id].text, static_cast<int32_t>(id));
  if (model_.type == ModelType::unigram) unigram_.emplace(model_);
  if (model_.type == ModelType::bpe || model_.type == ModelType::character) merges_.emplace(model_, user_defined_);
}

void Encoder::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const auto work = work_.take();
  normalizer_.normalize(text, work->normalized);
  const std::string_view normalized = work->normalized;
  if (normalized.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    throw fail(ErrorCode::io, file_, ": a text of ", text.size(), " bytes is too long for SentencePiece, which takes ",
               "texts of less than 2 GiB; split it into several");
  const auto first = static_cast<std::ptrdiff_t>(ids.size());
  if (unigram_)
    unigram_->encode(normalized, work->best, ids);
  else if (merges_)
    merges_->encode(normalized, work->merges, ids);
  else
    encode_words(normalized, ids);
  if (model_.byte_fallback) return;
  // What is unknown is one token, however long it is.
  const auto both_unknown = [&](int32_t a, int32_t b) { return a == model_.unk && b == model_.unk; };
  ids.erase(std::unique(ids.begin() + first, ids.end(), both_unknown), ids.end());
}

void Encoder::encode_words(std::string_view text, std::vector<int32_t>& ids) const {
  for (size_t at = 0; at < text.size();) {
    const size_t end = next_word(text, at, true);
    const std::string_view word = text.substr(at, end - at);
    const auto found = ids_.find(word);
    if (found != ids_.end() && model_.pieces[static_cast<size_t>(found->second)].type != PieceType::unused)
      ids.push_back(found->second);
    else if (!model_.byte_fallback)
      ids.push_back(model_.unk);
    else
      for (const char byte : word) ids.push_back(model_.byte_pieces[static_cast<unsigned char>(byte)]);
    at = end;
  }
}

void Encoder::decode(std::span<const int32_t> ids, std::string& text) const {
  std::string made, bytes;
  const bool strips = model_.normalizer.add_dummy_prefix || model_.normalizer.remove_extra_whitespaces;
  bool first = strips;  // a blank in front is none of the text
  for (const int32_t id : ids) {
    if (id < 0 || static_cast<size_t>(id) >= model_.pieces.size())
      throw fail(ErrorCode::config, "token ", id, " is none of ", file_, ", which has ", model_.pieces.size());
    const Piece& piece = model_.pieces[static_cast<size_t>(id)];
    if (piece.type == PieceType::byte) {
      bytes += static_cast<char>(byte_of_piece(piece.text));
      continue;
    }
    append_characters(bytes, made);
    bytes.clear();
    first = first && made.empty();
    append_piece(piece, first, made);
    // One blank is left out, or all of those in front where the normaliser removes them.
    if (piece.type != PieceType::control && piece.text.starts_with(kBlank) &&
        !model_.normalizer.remove_extra_whitespaces)
      first = false;
  }
  append_characters(bytes, made);
  if (denormalizer_) denormalizer_->normalize(std::string(made), made);
  text += made;
}

void Encoder::append_piece(const Piece& piece, bool first, std::string& text) const {
  if (piece.type == PieceType::control) return;
  if (piece.type == PieceType::unknown) {
    text += model_.unk_surface;
    return;
  }
  std::string_view left = piece.text;
  if (first && left.starts_with(kBlank)) left.remove_prefix(kBlank.size());
  for (size_t done = 0;;) {
    const size_t blank = std::min(left.find(kBlank, done), left.size());
    text += left.substr(done, blank - done);
    if (blank == left.size()) return;
    text += ' ';
    done = blank + kBlank.size();
  }
}

std::optional<int32_t> Encoder::id_of(std::string_view piece) const {
  const auto found = ids_.find(piece);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<int32_t> Encoder::control(const std::string& piece) const {
  const std::optional<int32_t> id = id_of(piece);
  return id && model_.pieces[static_cast<size_t>(*id)].type == PieceType::control ? id : std::nullopt;
}

}  // namespace drivetrain::sentencepiece_models
