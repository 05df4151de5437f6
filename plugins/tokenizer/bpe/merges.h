// Byte-pair encoding of one piece of text: the vocabulary, the merges and a cache of pieces. Const calls from any
// thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include <drivetrain/toolkit/text/merge_symbols.h>
#include <drivetrain/toolkit/text/piece_cache.h>

#include "token_table.h"

namespace drivetrain::bpe {

// Two tokens beside each other become one.
struct Merge {
  int32_t left, right, made;
};

class Merges {
 public:
  // `ids`: tokens as bytes. `bytes`: the token of every byte, -1 for a byte that text never has. `whole_first`: a piece
  // that is a token stays one, whatever the merges say ("ignore_merges").
  // `characters`: by code point, the tokens that single characters are, -1 for none; one that has none, or lies behind
  // the end, is its bytes. Empty: every character is its bytes.
  Merges(const TokenIds& ids, const std::array<int32_t, 256>& bytes, const std::vector<Merge>& merges, bool whole_first,
         std::vector<int32_t> characters = {});

  // One thread at a time.
  struct Workspace {
    PieceCache cache;
    SymbolMerges<int32_t> merges;
  };
  // Error(io) for a piece of 2 GiB or more: its symbols are counted in 32 bits.
  void encode(std::string_view piece, Workspace& work, std::vector<int32_t>& ids) const;

 private:
  struct Made {
    uint32_t rank = kNoRank;
    int32_t id = -1;
  };
  struct Slot {
    uint64_t pair = ~uint64_t{0};
    Made made;
  };
  // What the merges make of a token's own text: found when a text has it for the first time.
  enum class Whole : uint8_t { not_known, token, others };

  Slot& slot(uint64_t pair);
  Made find(int32_t left, int32_t right) const;
  void add_symbols(std::string_view piece, std::vector<int32_t>& symbols) const;
  void encode_new(std::string_view piece, SymbolMerges<int32_t>& work, std::vector<int32_t>& ids) const;
  void merge(std::string_view piece, SymbolMerges<int32_t>& work, std::vector<int32_t>& ids) const;

  const TokenTable tokens_;
  const std::array<int32_t, 256> bytes_;
  const bool whole_first_;
  const std::vector<int32_t> characters_;
  std::vector<Slot> slots_;  // open addressing; a power of two
  std::vector<Made> small_;  // of two ids below 256, as those of bytes mostly are: by the one and the other
  mutable std::vector<std::atomic<Whole>> whole_;  // by id
};

}  // namespace drivetrain::bpe
