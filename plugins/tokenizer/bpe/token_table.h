// Tokens by their texts: in a map, where they are read, and in a flat table, where texts are encoded.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace drivetrain::bpe {

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using TokenIds = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;

class TokenTable {
 public:
  explicit TokenTable(const TokenIds& ids);
  // The id of the token that is this text, or -1.
  int32_t find(std::string_view text) const;
  int32_t highest_id() const { return highest_; }

 private:
  struct Slot {
    uint32_t hash = 0, begin = 0, length = 0;
    int32_t id = -1;
  };
  size_t place(size_t hash) const { return hash & (slots_.size() - 1); }

  std::vector<Slot> slots_;  // open addressing; a power of two
  std::string texts_;        // all of them behind each other
  size_t longest_ = 0;
  int32_t highest_ = -1;
};

}  // namespace drivetrain::bpe
