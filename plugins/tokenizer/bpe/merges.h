// Byte-pair encoding of one piece of text: the vocabulary, the merges and a cache of pieces. Const calls from any
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace drivetrain::bpe {

// Two tokens beside each other become one.
struct Merge {
  int32_t left, right, made;
};

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using TokenIds = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;

// Results for short pieces, and memory that is used again. One thread at a time.
class PieceCache;
struct FreeCache {
  void operator()(PieceCache* cache) const;
};
using OwnedCache = std::unique_ptr<PieceCache, FreeCache>;

class Merges {
 public:
  // `ids`: tokens as bytes. `bytes`: the token of every byte, -1 for a byte that text never has. `whole_first`: a piece
  // that is a token stays one, whatever the merges say ("ignore_merges").
  // `characters`: by code point, the tokens that single characters are, -1 for none; one that has none, or lies behind
  // the end, is its bytes. Empty: every character is its bytes.
  Merges(TokenIds ids, const std::array<int32_t, 256>& bytes, const std::vector<Merge>& merges, bool whole_first,
         std::vector<int32_t> characters = {});

  OwnedCache make_cache() const;
  // Error(io) for a piece of 2 GiB or more: its symbols are counted in 32 bits.
  void encode(std::string_view piece, PieceCache& cache, std::vector<int32_t>& ids) const;

 private:
  struct Slot {
    uint64_t pair = ~uint64_t{0};
    int32_t rank = 0, made = 0;
  };
  const Slot* find(int32_t left, int32_t right) const;
  size_t symbols_of(std::string_view piece, int32_t* symbols) const;  // room for as many as bytes; returns how many
  void merge(std::string_view piece, PieceCache& cache, std::vector<int32_t>& ids) const;
  void merge_short(std::string_view piece, std::vector<int32_t>& ids) const;
  void merge_long(std::string_view piece, PieceCache& cache, std::vector<int32_t>& ids) const;

  const TokenIds ids_;
  const std::array<int32_t, 256> bytes_;
  const bool whole_first_;
  const std::vector<int32_t> characters_;
  std::vector<Slot> slots_;  // open addressing; a power of two
  uint64_t mask_ = 0;
};

}  // namespace drivetrain::bpe
