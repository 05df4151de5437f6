// UTF-8: validity, replacement of what is not valid, and single code points of valid text. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace drivetrain {

// The length of the longest valid prefix.
size_t valid_utf8(std::string_view text);
// Appends `text` with U+FFFD for every maximal invalid part, as Python's errors="replace" and the Unicode standard
// (section 3.9, table 3-8) have it.
void append_replaced(std::string_view text, std::string& out);

// The first place from `at` on that does not hold ASCII, or the end.
size_t end_of_ascii(std::string_view text, size_t at);

struct CodePoint {
  uint32_t value;
  uint32_t length;  // bytes
};

// The code point that begins at `at`. The text must be valid, and `at` the begin of a character.
inline CodePoint code_point(std::string_view text, size_t at) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data()) + at;
  if (p[0] < 0x80) return {p[0], 1};
  if (p[0] < 0xE0) return {(p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu), 2};
  if (p[0] < 0xF0) return {(p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu), 3};
  return {(p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu), 4};
}

// Appends the character; `code` is below 0x110000.
void append_code_point(uint32_t code, std::string& out);

// The begin of the character that ends before `at`, which is not 0.
inline size_t previous_character(std::string_view text, size_t at) {
  do --at;
  while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

}  // namespace drivetrain
