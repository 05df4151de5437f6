#include "merges.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include <drivetrain/error.h>

#include <drivetrain/toolkit/text/utf8.h>

namespace drivetrain::bpe {
namespace {

constexpr uint64_t kMix = 0x9E3779B97F4A7C15ull;
constexpr size_t kShort = 40;  // bytes of pieces whose best merge is searched from left to right
constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();
constexpr size_t kLongest = std::numeric_limits<int32_t>::max();  // bytes of a piece

uint64_t mix(uint64_t x) {
  x *= kMix;
  return x ^ x >> 29;
}

uint64_t pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

// A piece of up to 22 bytes and its tokens, up to 10, in a cache line. A new piece replaces the one in its place.
class PieceCache {
 public:
  struct alignas(64) Line {
    uint8_t length = 0, count = 0;
    char piece[22] = {};
    int32_t ids[10] = {};
  };
  static constexpr size_t kLines = size_t{1} << 15;

  PieceCache() : lines_(kLines) {}

  Line& line(std::string_view piece) {
    uint64_t parts[3] = {piece.size(), 0, 0};
    std::memcpy(reinterpret_cast<char*>(parts) + 1, piece.data(), piece.size());
    const uint64_t hash = mix(mix(mix(parts[0]) + parts[1]) + parts[2]);
    return lines_[hash >> 49];
  }

  // Symbols of a long piece, linked in both directions, and possible merges, the best one first.
  struct Symbol {
    int32_t id, before, after;  // id -1: it is part of the one before
  };
  struct Possible {
    int32_t rank, at, made;
    bool operator<(const Possible& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;  // the top of a heap is the largest
    }
  };
  std::vector<Symbol> symbols;
  std::vector<Possible> possible;
  std::vector<int32_t> first;  // symbols before any merge

 private:
  std::vector<Line> lines_;
};

void FreeCache::operator()(PieceCache* cache) const { delete cache; }
OwnedCache Merges::make_cache() const { return OwnedCache(new PieceCache); }

Merges::Merges(TokenIds ids, const std::array<int32_t, 256>& bytes, const std::vector<Merge>& merges, bool whole_first,
               std::vector<int32_t> characters)
    : ids_(std::move(ids)),
      bytes_(bytes),
      whole_first_(whole_first),
      characters_(std::move(characters)),
      slots_(std::bit_ceil(2 * merges.size() + 2)) {
  mask_ = slots_.size() - 1;
  int32_t rank = 0;
  for (const Merge& merge : merges) {  // of two equal pairs the later one counts
    const uint64_t pair = pair_of(merge.left, merge.right);
    uint64_t at = mix(pair) >> 8 & mask_;
    while (slots_[at].pair != ~uint64_t{0} && slots_[at].pair != pair) at = (at + 1) & mask_;
    slots_[at] = {pair, rank++, merge.made};
  }
}

const Merges::Slot* Merges::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  for (uint64_t at = mix(pair) >> 8 & mask_;; at = (at + 1) & mask_) {
    if (slots_[at].pair == pair) return &slots_[at];
    if (slots_[at].pair == ~uint64_t{0}) return nullptr;
  }
}

void Merges::encode(std::string_view piece, PieceCache& cache, std::vector<int32_t>& ids) const {
  if (piece.empty()) return;
  if (piece.size() == 1 && characters_.empty()) {
    ids.push_back(bytes_[static_cast<unsigned char>(piece[0])]);
    return;
  }
  if (piece.size() > sizeof(PieceCache::Line::piece)) return merge(piece, cache, ids);
  PieceCache::Line& line = cache.line(piece);
  if (line.length == piece.size() && std::memcmp(line.piece, piece.data(), piece.size()) == 0) {
    ids.insert(ids.end(), line.ids, line.ids + line.count);
    return;
  }
  const size_t begin = ids.size();
  merge(piece, cache, ids);
  const size_t count = ids.size() - begin;
  if (count > std::size(line.ids)) return;
  line.length = static_cast<uint8_t>(piece.size()), line.count = static_cast<uint8_t>(count);
  std::memcpy(line.piece, piece.data(), piece.size());
  std::memcpy(line.ids, ids.data() + begin, count * sizeof(int32_t));
}

size_t Merges::symbols_of(std::string_view piece, int32_t* symbols) const {
  size_t count = 0;
  const auto add_byte = [&](char byte) { symbols[count++] = bytes_[static_cast<unsigned char>(byte)]; };
  if (characters_.empty()) {
    for (const char byte : piece) add_byte(byte);
    return count;
  }
  for (size_t at = 0; at < piece.size();) {
    const CodePoint one = code_point(piece, at);
    const int32_t id = one.value < characters_.size() ? characters_[one.value] : -1;
    if (id >= 0)
      symbols[count++] = id;
    else
      for (const char byte : piece.substr(at, one.length)) add_byte(byte);
    at += one.length;
  }
  return count;
}

void Merges::merge(std::string_view piece, PieceCache& cache, std::vector<int32_t>& ids) const {
  if (piece.size() > kLongest)
    throw fail(ErrorCode::io, "tokenizer/bpe: a text has a piece of ", piece.size(),
               " bytes that the pre-tokenizer does ", "not cut, and a piece can have ", kLongest,
               "; split the text into several");
  if (whole_first_) {
    const auto whole = ids_.find(piece);
    if (whole != ids_.end()) return ids.push_back(whole->second);
  }
  if (piece.size() <= kShort)
    merge_short(piece, ids);
  else
    merge_long(piece, cache, ids);
}

void Merges::merge_short(std::string_view piece, std::vector<int32_t>& ids) const {
  int32_t symbols[kShort], ranks[kShort], made[kShort];  // ranks and made: of a symbol with the one behind it
  size_t count = symbols_of(piece, symbols);
  const auto look = [&](size_t at) {
    const Slot* slot = at + 1 < count ? find(symbols[at], symbols[at + 1]) : nullptr;
    ranks[at] = slot ? slot->rank : kNoRank;
    made[at] = slot ? slot->made : 0;
  };
  for (size_t i = 0; i < count; ++i) look(i);
  for (;;) {
    size_t best = 0;
    for (size_t i = 1; i < count; ++i)
      if (ranks[i] < ranks[best]) best = i;
    if (ranks[best] == kNoRank) break;
    symbols[best] = made[best];
    --count;
    for (size_t i = best + 1; i < count; ++i)
      symbols[i] = symbols[i + 1], ranks[i] = ranks[i + 1], made[i] = made[i + 1];
    look(best);
    if (best > 0) look(best - 1);
  }
  ids.insert(ids.end(), symbols, symbols + count);
}

void Merges::merge_long(std::string_view piece, PieceCache& cache, std::vector<int32_t>& ids) const {
  auto& symbols = cache.symbols;
  auto& possible = cache.possible;
  symbols.clear(), possible.clear();
  cache.first.resize(piece.size());
  const auto count = static_cast<int32_t>(symbols_of(piece, cache.first.data()));
  for (int32_t i = 0; i < count; ++i)
    symbols.push_back({cache.first[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  const auto symbol = [&](int32_t at) -> PieceCache::Symbol& { return symbols[static_cast<size_t>(at)]; };
  const auto look = [&](int32_t at) {
    if (at < 0 || symbol(at).after < 0) return false;
    const Slot* slot = find(symbol(at).id, symbol(symbol(at).after).id);
    if (slot) possible.push_back({slot->rank, at, slot->made});
    return slot != nullptr;
  };
  for (int32_t i = 0; i < count; ++i) look(i);
  std::make_heap(possible.begin(), possible.end());
  while (!possible.empty()) {
    std::pop_heap(possible.begin(), possible.end());
    const PieceCache::Possible top = possible.back();
    possible.pop_back();
    PieceCache::Symbol& here = symbol(top.at);
    if (here.id < 0 || here.after < 0) continue;
    const Slot* slot = find(here.id, symbol(here.after).id);
    if (!slot || slot->rank != top.rank) continue;  // one of the two has become part of another
    PieceCache::Symbol& gone = symbol(here.after);
    here.id = top.made, here.after = gone.after, gone.id = -1;
    if (here.after >= 0) symbol(here.after).before = top.at;
    for (const int32_t at : {top.at, here.before})
      if (look(at)) std::push_heap(possible.begin(), possible.end());
  }
  for (int32_t at = 0; at >= 0; at = symbol(at).after) ids.push_back(symbol(at).id);
}

}  // namespace drivetrain::bpe
