#include "merges.h"

#include <bit>
#include <limits>

#include <drivetrain/error.h>

#include <drivetrain/toolkit/text/utf8.h>

namespace drivetrain::bpe {
namespace {

constexpr size_t kLongestPiece = std::numeric_limits<int32_t>::max();  // bytes
constexpr uint32_t kSmall = 256;

uint64_t pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

uint64_t mix(uint64_t x) {
  x *= 0x9E3779B97F4A7C15ull;
  return x ^ x >> 29;
}

bool are_small(int32_t left, int32_t right) { return static_cast<uint32_t>(left | right) < kSmall; }
size_t small_place(int32_t left, int32_t right) {
  return static_cast<size_t>(left) * kSmall + static_cast<size_t>(right);
}

}  // namespace

Merges::Merges(const TokenIds& ids, const std::array<int32_t, 256>& bytes, const std::vector<Merge>& merges,
               bool whole_first, std::vector<int32_t> characters)
    : tokens_(ids),
      bytes_(bytes),
      whole_first_(whole_first),
      characters_(std::move(characters)),
      slots_(std::bit_ceil(2 * merges.size() + 2)),
      small_(kSmall * kSmall),
      whole_(static_cast<size_t>(tokens_.highest_id() + 1)) {
  uint32_t rank = 0;
  for (const Merge& merge : merges) {  // of two equal pairs the later one counts
    const Made made{rank++, merge.made};
    if (are_small(merge.left, merge.right))
      small_[small_place(merge.left, merge.right)] = made;
    else
      slot(pair_of(merge.left, merge.right)).made = made;
  }
}

Merges::Slot& Merges::slot(uint64_t pair) {
  const uint64_t mask = slots_.size() - 1;
  uint64_t at = mix(pair) >> 8 & mask;
  while (slots_[at].pair != ~uint64_t{0} && slots_[at].pair != pair) at = (at + 1) & mask;
  slots_[at].pair = pair;
  return slots_[at];
}

Merges::Made Merges::find(int32_t left, int32_t right) const {
  if (are_small(left, right)) return small_[small_place(left, right)];
  const uint64_t pair = pair_of(left, right), mask = slots_.size() - 1;
  for (uint64_t at = mix(pair) >> 8 & mask;; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.pair == pair || slot.pair == ~uint64_t{0}) return slot.made;
  }
}

void Merges::encode(std::string_view piece, Workspace& work, std::vector<int32_t>& ids) const {
  if (piece.empty()) return;
  if (piece.size() == 1 && characters_.empty()) {
    ids.push_back(bytes_[static_cast<unsigned char>(piece[0])]);
    return;
  }
  work.cache.encode(piece, ids, [&] { encode_new(piece, work.merges, ids); });
}

void Merges::encode_new(std::string_view piece, SymbolMerges<int32_t>& work, std::vector<int32_t>& ids) const {
  if (piece.size() > kLongestPiece)
    throw fail(ErrorCode::io, "tokenizer/bpe: a text has a piece of ", piece.size(),
               " bytes that the pre-tokenizer does ", "not cut, and a piece can have ", kLongestPiece,
               "; split the text into several");
  const int32_t token = tokens_.find(piece);
  if (token < 0) return merge(piece, work, ids);
  std::atomic<Whole>& whole = whole_[static_cast<size_t>(token)];
  const Whole known = whole_first_ ? Whole::token : whole.load(std::memory_order_relaxed);
  if (known == Whole::token) return ids.push_back(token);
  const size_t begin = ids.size();
  merge(piece, work, ids);
  if (known == Whole::not_known)
    whole.store(ids.size() == begin + 1 && ids[begin] == token ? Whole::token : Whole::others,
                std::memory_order_relaxed);
}

void Merges::merge(std::string_view piece, SymbolMerges<int32_t>& work, std::vector<int32_t>& ids) const {
  work.symbols.clear();
  add_symbols(piece, work.symbols);
  work.merge([&](int32_t left, int32_t right, int32_t& made) {
    const Made found = find(left, right);
    made = found.id;
    return found.rank;
  });
  ids.insert(ids.end(), work.symbols.begin(), work.symbols.end());
}

void Merges::add_symbols(std::string_view piece, std::vector<int32_t>& symbols) const {
  const auto add_bytes = [&](std::string_view text) {
    for (const char byte : text) symbols.push_back(bytes_[static_cast<unsigned char>(byte)]);
  };
  if (characters_.empty()) return add_bytes(piece);
  for (size_t at = 0; at < piece.size();) {
    const CodePoint one = code_point(piece, at);
    const int32_t id = one.value < characters_.size() ? characters_[one.value] : -1;
    if (id >= 0)
      symbols.push_back(id);
    else
      add_bytes(piece.substr(at, one.length));
    at += one.length;
  }
}

}  // namespace drivetrain::bpe
