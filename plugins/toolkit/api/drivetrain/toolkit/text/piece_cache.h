// Tokens of short pieces of text that were encoded before: a text repeats its words. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace drivetrain {

// A piece of up to 24 bytes and its tokens, up to 9, in a cache line; a new piece replaces the one in its place.
class PieceCache {
 public:
  PieceCache() : lines_(kLines) {}

  // Appends the tokens of `piece`, which is not empty: those of the time before, or what encode() appends to `ids`.
  template <class Encode>
  void encode(std::string_view piece, std::vector<int32_t>& ids, const Encode& encode) {
    if (piece.size() > kLongest) return encode();
    const Key key = key_of(piece);
    Line& line = lines_[place(key, piece.size())];
    if (line.length == piece.size() && line.key.a == key.a && line.key.b == key.b && line.key.c == key.c) {
      if (line.count == 1) return ids.push_back(line.ids[0]);
      ids.insert(ids.end(), line.ids, line.ids + line.count);
      return;
    }
    const size_t begin = ids.size();
    encode();
    const size_t count = ids.size() - begin;
    if (count > kMostIds) return;
    line.key = key, line.length = static_cast<uint8_t>(piece.size()), line.count = static_cast<uint8_t>(count);
    std::copy_n(ids.data() + begin, count, line.ids);
  }

 private:
  static constexpr size_t kLineBits = 15, kLines = size_t{1} << kLineBits, kLongest = 24, kMostIds = 9;

  // All bytes of a piece, in an order that depends on its length alone.
  struct Key {
    uint64_t a = 0, b = 0, c = 0;
  };
  struct alignas(64) Line {
    Key key;
    uint8_t length = 0, count = 0;
    int32_t ids[kMostIds] = {};
  };

  template <class Word>
  static uint64_t load(const char* from) {
    Word word;
    std::memcpy(&word, from, sizeof(word));
    return word;
  }
  static Key key_of(std::string_view piece) {
    const char* const first = piece.data();
    const size_t size = piece.size();
    if (size > 16) return {load<uint64_t>(first), load<uint64_t>(first + 8), load<uint64_t>(first + size - 8)};
    if (size >= 8) return {load<uint64_t>(first), 0, load<uint64_t>(first + size - 8)};
    if (size >= 4) return {load<uint32_t>(first) << 32 | load<uint32_t>(first + size - 4), 0, 0};
    return {load<uint8_t>(first) << 16 | load<uint8_t>(first + size / 2) << 8 | load<uint8_t>(first + size - 1), 0, 0};
  }
  static uint64_t mix(uint64_t x) {
    x *= 0x9E3779B97F4A7C15ull;
    return x ^ x >> 29;
  }
  static size_t place(const Key& key, size_t length) {
    return mix(mix(mix(key.a + length) + key.b) + key.c) * 0x9E3779B97F4A7C15ull >> (64 - kLineBits);
  }

  std::vector<Line> lines_;
};

}  // namespace drivetrain
