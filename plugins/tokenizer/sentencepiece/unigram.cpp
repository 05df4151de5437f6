#include "unigram.h"

#include <algorithm>
#include <limits>

#include "normalizer.h"

namespace drivetrain::sentencepiece_models {
namespace {

constexpr float kUnknownPenalty = 10;

Trie scored_pieces(const ModelFile& model) {
  Trie::Texts texts;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    const bool of_user = piece.type == PieceType::user_defined;
    if (of_user || piece.type == PieceType::normal)
      texts.emplace_back(piece.text, static_cast<int32_t>(2 * id + of_user));
  }
  return Trie(std::move(texts));
}

}  // namespace

Unigram::Unigram(const ModelFile& model) : model_(model), trie_(scored_pieces(model)) {
  float lowest = std::numeric_limits<float>::max();
  highest_ = std::numeric_limits<float>::min();
  for (const Piece& piece : model.pieces) {
    scores_.push_back(piece.score);
    if (piece.type == PieceType::normal)
      lowest = std::min(lowest, piece.score), highest_ = std::max(highest_, piece.score);
  }
  of_unknown_ = lowest - kUnknownPenalty;
}

// The sums, their rounding to float and which of equal ones stays (the first) are the library's, of version 0.2.3: in
// long texts there are ways whose sums differ by less than a float shows.
void Unigram::find_best(std::string_view text, std::vector<Best>& best) const {
  best.assign(text.size() + 1, Best());
  const auto try_end = [&](size_t begin, size_t end, int32_t id, float score) {
    Best& there = best[end];
    if (there.begin >= 0 && score <= there.score) return;
    there = {id, static_cast<int32_t>(begin), score};
  };
  for (size_t begin = 0; begin < text.size();) {
    const float here = best[begin].score;
    const size_t length = character_length(text, begin);
    bool is_piece = false;  // the character alone
    uint32_t node = Trie::kRoot;
    for (size_t end = begin; end < text.size();) {
      node = trie_.next(node, text[end++]);
      if (node == Trie::kNowhere) break;
      const int32_t value = trie_.value(node);
      if (value == Trie::kNoValue) continue;
      const auto id = static_cast<size_t>(value) >> 1;
      float score = scores_[id];
      if (value & 1) score = static_cast<float>(static_cast<float>(end - begin) * highest_ - 0.1);  // always preferred
      try_end(begin, end, static_cast<int32_t>(id), score + here);
      if (end - begin == length) is_piece = true;
    }
    if (!is_piece) try_end(begin, begin + length, model_.unk, of_unknown_ + here);
    begin += length;
  }
}

void Unigram::encode(std::string_view text, std::vector<Best>& best, std::vector<int32_t>& ids) const {
  find_best(text, best);
  const auto first = static_cast<std::ptrdiff_t>(ids.size());
  for (size_t end = text.size(); end > 0;) {  // from the end on, and turned around
    const Best& last = best[end];
    const auto begin = static_cast<size_t>(last.begin);
    if (last.id == model_.unk && model_.byte_fallback) {
      for (size_t at = end; at-- > begin;) ids.push_back(model_.byte_pieces[static_cast<unsigned char>(text[at])]);
    } else {
      ids.push_back(last.id);
    }
    end = begin;
  }
  std::reverse(ids.begin() + first, ids.end());
}

}  // namespace drivetrain::sentencepiece_models
