#include "merges.h"

#include <algorithm>
#include <functional>

#include "normalizer.h"

namespace drivetrain::sentencepiece_models {
namespace {

constexpr uint32_t kFrozen = Trie::kNowhere - 1;  // in place of a node: a piece of the user, which joins nothing
constexpr int kDeepest = 100;                     // pieces within each other that are divided again, as in the library

Trie all_pieces(const ModelFile& model) {
  Trie::Texts texts;
  for (size_t id = 0; id < model.pieces.size(); ++id)
    texts.emplace_back(model.pieces[id].text, static_cast<int32_t>(id));
  return Trie(std::move(texts));
}

bool is_joined(PieceType type) {
  return type == PieceType::normal || type == PieceType::user_defined || type == PieceType::unused;
}

}  // namespace

Merges::Merges(const ModelFile& model, const Trie& user_defined)
    : model_(model), user_defined_(user_defined), trie_(all_pieces(model)), ranks_(model.pieces.size(), kNoRank) {
  const std::vector<Piece>& pieces = model.pieces;
  by_words_ = std::all_of(pieces.begin(), pieces.end(), [](const Piece& piece) {
    return piece.type != PieceType::normal || is_one_word(piece.text);
  });
  if (model.type == ModelType::character) return;
  std::vector<float> scores;
  for (const Piece& piece : pieces) {
    if (is_joined(piece.type)) scores.push_back(piece.score);
    has_unused_ = has_unused_ || piece.type == PieceType::unused;
  }
  std::sort(scores.begin(), scores.end(), std::greater<>());
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (!is_joined(pieces[id].type)) continue;
    const auto place = std::lower_bound(scores.begin(), scores.end(), pieces[id].score, std::greater<>());
    ranks_[id] = static_cast<uint32_t>(place - scores.begin());
  }
  // The library divides an unused piece as its neighbours made it last, wherever in the text that was.
  by_words_ = by_words_ && !has_unused_;
}

std::pair<size_t, size_t> Merges::next_of_user(std::string_view text, size_t from) const {
  if (!user_defined_.empty()) {
    for (size_t at = from; at < text.size(); at += character_length(text, at)) {
      if (!user_defined_.begins(text[at])) continue;
      const size_t length = user_defined_.longest(text.substr(at)).first;
      if (length > 0) return {at, length};
    }
  }
  return {text.size(), 0};
}

void Merges::encode(std::string_view text, Workspace& work, std::vector<int32_t>& ids) const {
  if (!by_words_) return encode_whole(text, work, ids);
  for (size_t at = 0; at < text.size();) {
    const auto [begin, length] = next_of_user(text, at);
    encode_words(text.substr(at, begin - at), work, ids);
    if (length > 0) add(text.substr(begin, length), 0, work, ids);
    at = begin + length;
  }
}

void Merges::encode_words(std::string_view text, Workspace& work, std::vector<int32_t>& ids) const {
  for (size_t at = 0; at < text.size();) {
    const size_t end = next_word(text, at, false);
    const std::string_view word = text.substr(at, end - at);
    work.cache.encode(word, ids, [&] { encode_whole(word, work, ids); });
    at = end;
  }
}

void Merges::encode_whole(std::string_view text, Workspace& work, std::vector<int32_t>& ids) const {
  std::vector<Symbol>& symbols = work.merges.symbols;
  symbols.clear();
  auto of_user = next_of_user(text, 0);
  for (size_t at = 0; at < text.size();) {
    const bool frozen = at == of_user.first;
    const size_t end = at + (frozen ? of_user.second : character_length(text, at));
    const uint32_t node = frozen ? kFrozen : trie_.walk(Trie::kRoot, text.substr(at, end - at));
    symbols.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(end), node});
    if (frozen) of_user = next_of_user(text, end);
    at = end;
  }
  work.divided.clear();
  work.merges.merge([&](const Symbol& left, const Symbol& right, Symbol& made) {
    if (left.node >= kFrozen || right.node == kFrozen) return kNoRank;
    const uint32_t node = trie_.walk(left.node, text.substr(right.begin, right.end - right.begin));
    if (node == Trie::kNowhere || trie_.value(node) == Trie::kNoValue) return kNoRank;
    made = {left.begin, right.end, node};
    const auto id = static_cast<size_t>(trie_.value(node));
    if (has_unused_ && model_.pieces[id].type == PieceType::unused)
      work.divided[trie_.value(node)] = left.end - left.begin;
    return ranks_[id];
  });
  for (const Symbol& symbol : symbols) add(text.substr(symbol.begin, symbol.end - symbol.begin), 0, work, ids);
}

void Merges::add(std::string_view piece, int depth, const Workspace& work, std::vector<int32_t>& ids) const {
  const uint32_t node = trie_.walk(Trie::kRoot, piece);
  const int32_t found = node == Trie::kNowhere ? Trie::kNoValue : trie_.value(node);
  int32_t id = found == Trie::kNoValue ? model_.unk : found;
  if (model_.pieces[static_cast<size_t>(id)].type == PieceType::unused) {
    const auto divided = work.divided.find(id);
    if (divided != work.divided.end() && depth <= kDeepest) {
      add(piece.substr(0, divided->second), depth + 1, work, ids);
      return add(piece.substr(divided->second), depth + 1, work, ids);
    }
    id = model_.unk;
  }
  if (id != model_.unk || !model_.byte_fallback) return ids.push_back(id);
  for (const char byte : piece) ids.push_back(model_.byte_pieces[static_cast<unsigned char>(byte)]);
}

}  // namespace drivetrain::sentencepiece_models
