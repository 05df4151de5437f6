// Tokens that are found in a text before it is cut into pieces, with their flags. Const calls from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace drivetrain::bpe {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;      // changes nothing in encoding
  bool single_word = false;  // not within a word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and behind it
  bool normalized = false;   // found in the normalised text
};

// Finds tokens: of those that begin first the longest.
class TokenFinder {
 public:
  // The contents as they stand in the text that is searched, none of them empty; the tokens outlive this.
  explicit TokenFinder(std::vector<std::pair<std::string, const AddedToken*>> tokens);

  struct Part {
    size_t begin, end;
    const AddedToken* token;  // null: text
  };
  // The text as tokens and what is between them. `parts` is overwritten.
  void split(std::string_view text, std::vector<Part>& parts) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, uint32_t>> next;  // sorted
    const AddedToken* token = nullptr;
  };
  struct Found {
    size_t begin, end;
    const AddedToken* token;  // null: none
  };
  Found find(std::string_view text, size_t from) const;
  uint32_t child(uint32_t node, unsigned char byte) const;  // 0: none

  std::vector<Node> nodes_;
  bool first_[256] = {};
  std::optional<char> only_first_;  // where all tokens begin with the same byte, as with '<'
};

}  // namespace drivetrain::bpe
