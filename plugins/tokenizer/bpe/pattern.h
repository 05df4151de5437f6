// Regular expressions of pre-tokenizers, as Hugging Face's tokenizers (Oniguruma) understands them: alternatives of
// sets of characters with repeats, groups that stand once or not at all, and lookahead of one character. That is all
// that the published patterns use; whatever else an expression has is an error that names it. Const calls from any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <drivetrain/toolkit/text/utf8.h>

namespace drivetrain::bpe {

// A set of characters, as a bit for every code point.
class CharacterSet {
 public:
  CharacterSet() : bits_(0x110000 / 64) {}
  bool has(uint32_t c) const { return (bits_[c / 64] >> (c % 64) & 1) != 0; }
  void add(uint32_t c) { bits_[c / 64] |= uint64_t{1} << (c % 64); }
  void add(uint32_t first, uint32_t last);
  void add(const CharacterSet& other);
  void invert();
  const std::vector<uint64_t>& words() const { return bits_; }
  bool operator==(const CharacterSet&) const = default;

 private:
  std::vector<uint64_t> bits_;
};

inline constexpr uint32_t kNoLimit = ~uint32_t{0};

struct PatternItem;
using PatternItems = std::vector<PatternItem>;

// One element of an alternative: a repeated set, a look at the next character, or a group.
struct PatternItem {
  enum class Kind { repeat, possessive, ahead, not_ahead, group };  // possessive: gives nothing back
  Kind kind = Kind::repeat;
  std::shared_ptr<const CharacterSet> set{};
  uint32_t least = 1, most = 1;       // of a group: 0 or 1, and 1
  std::vector<PatternItems> group{};  // its alternatives
};

class PatternTable;

class Pattern {
 public:
  // Error(config) with `where` in front.
  Pattern(std::string_view expression, const std::string& where);

  struct Match {
    size_t begin, end;
  };
  static constexpr size_t kNone = std::string_view::npos;
  // The first match that begins at `from` or later and before the end of the text; it may be empty. begin is kNone if
  // there is none. Valid UTF-8 only. Error(config) where looking for it would take longer than a second or so.
  Match find(std::string_view text, size_t from) const;

 private:
  std::string name_;  // for errors
  std::shared_ptr<const PatternTable> table_;
};

// The pattern, or its beginning: a message is for people.
std::string shown_pattern(std::string_view expression);

// An expression as its alternatives in order. Error(config) with `where` in front.
std::vector<PatternItems> parse_pattern(std::string_view expression, const std::string& where);

}  // namespace drivetrain::bpe
