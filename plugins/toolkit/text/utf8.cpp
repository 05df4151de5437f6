#include <drivetrain/toolkit/text/utf8.h>

#include <bit>
#include <cstring>

namespace drivetrain {
namespace {

// Bytes of the valid character at `p`, or 0; then `bad` is the length of the maximal invalid part.
size_t character(const unsigned char* p, size_t left, size_t& bad) {
  bad = 1;
  const unsigned char first = p[0];
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  const unsigned char low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (left < 2 || p[1] < low || p[1] > high) return 0;
  for (bad = 2; bad < length; ++bad)
    if (bad >= left || (p[bad] & 0xC0) != 0x80) return 0;
  return length;
}

}  // namespace

size_t end_of_ascii(std::string_view text, size_t at) {
  for (uint64_t eight = 0; at + sizeof(eight) <= text.size(); at += sizeof(eight)) {
    std::memcpy(&eight, text.data() + at, sizeof(eight));
    const uint64_t others = eight & 0x8080808080808080ull;
    if (others != 0) return at + static_cast<size_t>(std::countr_zero(others)) / 8;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

size_t valid_utf8(std::string_view text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  for (size_t at = end_of_ascii(text, 0);;) {
    if (at == text.size()) return at;
    size_t bad = 0;
    const size_t length = character(p + at, text.size() - at, bad);
    if (length == 0) return at;
    at += length;
    if (at < text.size() && p[at] < 0x80) at = end_of_ascii(text, at);
  }
}

void append_code_point(uint32_t code, std::string& out) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) return void(out += static_cast<char>(code));
  if (code < 0x800) return out += static_cast<char>(0xC0 | code >> 6), tail(0);
  if (code < 0x10000) return out += static_cast<char>(0xE0 | code >> 12), tail(6), tail(0);
  out += static_cast<char>(0xF0 | code >> 18), tail(12), tail(6), tail(0);
}

void append_replaced(std::string_view text, std::string& out) {
  for (;;) {
    const size_t good = valid_utf8(text);
    out += text.substr(0, good);
    text.remove_prefix(good);
    if (text.empty()) return;
    size_t bad = 0;
    character(reinterpret_cast<const unsigned char*>(text.data()), text.size(), bad);
    out += "\xEF\xBF\xBD";
    text.remove_prefix(bad);
  }
}

}  // namespace drivetrain
