// Texts and a number for each, as a double array: one load and one comparison for each byte of a text. Const calls from
// any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace drivetrain::sentencepiece_models {

class Trie {
 public:
  static constexpr uint32_t kRoot = 0, kNowhere = ~uint32_t{0};
  static constexpr int32_t kNoValue = -1;

  using Texts = std::vector<std::pair<std::string_view, int32_t>>;

  // Texts that differ from each other, none of them empty; values from 0 on.
  explicit Trie(Texts texts);

  // The node behind a byte, or kNowhere.
  uint32_t next(uint32_t node, char byte) const {
    const uint32_t child = nodes_[node].base ^ static_cast<unsigned char>(byte);
    return nodes_[child].parent == node ? child : kNowhere;
  }
  // The node behind a text, or kNowhere.
  uint32_t walk(uint32_t node, std::string_view text) const {
    for (const char byte : text) {
      node = next(node, byte);
      if (node == kNowhere) break;
    }
    return node;
  }
  int32_t value(uint32_t node) const { return nodes_[node].value; }
  // The longest of the texts that `text` begins with: its length and value; a length of 0 if there is none.
  std::pair<size_t, int32_t> longest(std::string_view text) const;
  bool begins(char byte) const { return next(kRoot, byte) != kNowhere; }
  bool empty() const { return empty_; }

 private:
  struct Node {
    uint32_t base = 0;  // a child is at base ^ byte
    uint32_t parent = kNowhere;
    int32_t value = kNoValue;
  };
  // Where the children with these bytes have room; `from` is where it begins to look, and moves on.
  size_t free_base(const std::vector<unsigned char>& bytes, size_t& from);

  std::vector<Node> nodes_;
  bool empty_;
};

}  // namespace drivetrain::sentencepiece_models
