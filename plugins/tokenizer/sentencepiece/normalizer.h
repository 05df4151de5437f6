// How SentencePiece changes a text before pieces are looked for: rules for characters, and what becomes of white space.
// Const calls from any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <drivetrain/toolkit/text/blank_words.h>

#include "model_file.h"
#include "trie.h"

namespace drivetrain::sentencepiece_models {

// Bytes of the character at `at`, by its first byte. A damaged model may make texts that end within a character.
inline size_t character_length(std::string_view text, size_t at) {
  constexpr uint8_t kLengths[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
  return std::min<size_t>(kLengths[static_cast<unsigned char>(text[at]) >> 4], text.size() - at);
}

class Normalizer {
 public:
  // `user_defined`: pieces that no rule changes; it outlives this. `blank_behind`: the blank that is added stands at
  // the end. Error(config) with `where` in front for rules that are damaged.
  Normalizer(NormalizerSpec spec, bool blank_behind, const Trie& user_defined, const std::string& where);
  Normalizer(const Normalizer&) = delete;
  Normalizer& operator=(const Normalizer&) = delete;

  // Valid UTF-8 only. `made` is overwritten.
  void normalize(std::string_view text, std::string& made) const;

 private:
  // What the text begins with, and what it becomes.
  struct Begin {
    std::string_view made;
    size_t length;
  };
  Begin begin(std::string_view text) const;
  // The longest rule that the text begins with: its length, 0 for none, and where its replacement begins; and how far
  // any rule goes along with the text.
  struct Rule {
    size_t length = 0, replacement = 0, reached = 0;
  };
  Rule rule(std::string_view text) const;
  bool is_plain(std::string_view text, size_t at) const;
  void append(std::string_view piece, bool& behind_blank, std::string& made) const;

  const NormalizerSpec spec_;
  const bool blank_behind_;
  const Trie& user_defined_;
  const std::string_view blank_;      // what a blank becomes
  std::vector<uint32_t> units_;       // of the rules, a double array of darts-clone
  std::string_view replacements_;     // in spec_.rules, a byte 0 behind each
  std::array<bool, 128> plain_ = {};  // ASCII that no rule is for, unless a character beyond ASCII follows
};

}  // namespace drivetrain::sentencepiece_models
