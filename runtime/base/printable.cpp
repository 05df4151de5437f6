#include "base/printable.h"

#include <cstdint>
#include <cstdio>

namespace drivetrain {
namespace {

constexpr size_t kLongestName = 160;  // bytes; what is longer says nothing more to people
constexpr size_t kShownEnd = 60;      // of both ends of a longer one

struct Character {
  uint32_t code = 0;
  size_t bytes = 1;
  bool valid = false;
};

// The character of UTF-8 that begins at `at`: shortest form, no surrogates, nothing above U+10FFFF.
Character character_at(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1, true};
  const size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return {};
  uint32_t code = first & (0x7Fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kLeast[bytes] || code > 0x10FFFF || surrogate) return {};
  return {code, bytes, true};
}

// Characters that change how what stands around them is seen, or cannot be seen at all.
bool is_misleading(uint32_t code) {
  const auto within = [&](uint32_t first, uint32_t last) { return code >= first && code <= last; };
  return code < 0x20 || within(0x7F, 0x9F) || code == 0xAD || code == 0x61C || within(0x200B, 0x200F) ||
         within(0x2028, 0x202E) || within(0x2060, 0x206F) || code == 0xFEFF || within(0xFFF9, 0xFFFB) ||
         within(0xE0000, 0xE007F);
}

std::string escaped(uint32_t code) {
  char text[16];
  std::snprintf(text, sizeof text, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
  return text;
}

std::string with_escapes(const std::string& text, bool keep_lines) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (!c.valid)
      out += escaped(static_cast<unsigned char>(text[at]));
    else if (is_misleading(c.code) && !(keep_lines && (c.code == '\n' || c.code == '\t')))
      out += escaped(c.code);
    else
      out.append(text, at, c.bytes);
    at += c.bytes;
  }
  return out;
}

std::string json_escape(uint32_t code) {
  char text[16];
  if (code < 0x10000)
    std::snprintf(text, sizeof text, "\\u%04x", code);
  else
    std::snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + (code & 0x3FF));
  return text;
}

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

std::string printable(const std::string& text) { return with_escapes(text, true); }

std::string printable_json(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (size_t at = 0; at < json.size();) {
    const Character c = character_at(json, at);
    if (!c.valid)
      out += "\\ufffd";  // no text: a file's name at most
    else if (c.code < 0x20 || !is_misleading(c.code))
      out.append(json, at, c.bytes);  // below 0x20 only the layout is left, strings have escapes already
    else
      out += json_escape(c.code);
    at += c.bytes;
  }
  return out;
}

std::string one_line(const std::string& path) { return with_escapes(path, false); }

std::string shown(const std::string& name) {
  if (name.size() <= kLongestName) return with_escapes(name, false);
  size_t front = kShownEnd, back = name.size() - kShownEnd;
  while (front > kShownEnd - 4 && continues_character(name[front])) --front;
  while (back < name.size() - kShownEnd + 4 && continues_character(name[back])) ++back;
  return with_escapes(name.substr(0, front), false) + "...(" + std::to_string(name.size()) + " bytes)..." +
         with_escapes(name.substr(back), false);
}

}  // namespace drivetrain
