// Models of type unigram: of all ways to make a text of pieces, the one with the highest sum of scores. Const calls
// from any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model_file.h"
#include "trie.h"

namespace drivetrain::sentencepiece_models {

class Unigram {
 public:
  explicit Unigram(const ModelFile& model);  // outlives this

  // The best way that ends at a byte.
  struct Best {
    int32_t id = 0;
    int32_t begin = -1;  // of its last piece; -1: no way ends here
    float score = 0;
  };
  // Appends the ids of a normalised text of less than 2 GiB.
  void encode(std::string_view text, std::vector<Best>& best, std::vector<int32_t>& ids) const;

 private:
  void find_best(std::string_view text, std::vector<Best>& best) const;

  const ModelFile& model_;
  const Trie trie_;             // values: twice the id, and one more for pieces of the user
  std::vector<float> scores_;   // by id
  float highest_, of_unknown_;  // scores
};

}  // namespace drivetrain::sentencepiece_models
