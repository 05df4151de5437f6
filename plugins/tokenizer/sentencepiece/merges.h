// Models of type BPE: of all neighbours that are a piece together, those with the highest score are joined first.
// Models of type char are those that join nothing. Const calls from any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <drivetrain/toolkit/text/merge_symbols.h>
#include <drivetrain/toolkit/text/piece_cache.h>

#include "model_file.h"
#include "trie.h"

namespace drivetrain::sentencepiece_models {

class Merges {
 public:
  // Both outlive this. `user_defined`: pieces that are found in a text first.
  Merges(const ModelFile& model, const Trie& user_defined);

  // A part of the text, and its node in the trie of all pieces.
  struct Symbol {
    uint32_t begin, end, node;
  };
  struct Workspace {
    PieceCache cache;
    SymbolMerges<Symbol> merges;
    // Where pieces of type unused are divided again, by id: bytes of the left part.
    std::unordered_map<int32_t, uint32_t> divided;
  };
  // Appends the ids of a normalised text of less than 2 GiB.
  void encode(std::string_view text, Workspace& work, std::vector<int32_t>& ids) const;

 private:
  void encode_words(std::string_view text, Workspace& work, std::vector<int32_t>& ids) const;
  void encode_whole(std::string_view text, Workspace& work, std::vector<int32_t>& ids) const;
  void add(std::string_view piece, int depth, const Workspace& work, std::vector<int32_t>& ids) const;
  // Where the next piece of the user begins, and its length; the end of the text, and 0, if there is none.
  std::pair<size_t, size_t> next_of_user(std::string_view text, size_t from) const;

  const ModelFile& model_;
  const Trie& user_defined_;
  const Trie trie_;              // of all pieces; values: ids
  std::vector<uint32_t> ranks_;  // by id: of merges that make it
  bool has_unused_ = false;
  bool by_words_;  // no merge joins two words
};

}  // namespace drivetrain::sentencepiece_models
