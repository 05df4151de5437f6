#include "nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include <drivetrain/toolkit/text/utf8.h>
#include "unicode.h"

namespace drivetrain::bpe {
namespace {

void append_nfc(std::string_view text, std::string& out) {
  utf8proc_uint8_t* made = nullptr;
  const auto flags = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                               static_cast<utf8proc_ssize_t>(text.size()), &made, flags);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, &std::free);
  if (length < 0) throw std::bad_alloc();  // the text is valid, so nothing else can fail
  out.append(reinterpret_cast<const char*>(made), static_cast<size_t>(length));
}

}  // namespace

// Only a character that may change and what stands before it, with those that may change behind it, are given to the
// library: whole texts would be slow, and the characters of later versions of Unicode stay as they are.
std::string_view to_nfc(std::string_view text, std::string& buffer) {
  buffer.clear();
  size_t copied = 0, before = 0;  // before: where the last character that stays as it is begins
  for (size_t at = 0; at < text.size();) {
    const size_t ascii = end_of_ascii(text, at);
    if (ascii > at) {
      before = ascii - 1, at = ascii;
      continue;
    }
    const CodePoint one = code_point(text, at);
    if (one.value < 0x300 || !nfc_may_change(one.value)) {
      before = at, at += one.length;
      continue;
    }
    size_t end = at + one.length;
    while (end < text.size()) {
      const CodePoint next = code_point(text, end);
      if (next.value < 0x300 || !nfc_may_change(next.value)) break;
      end += next.length;
    }
    // A mark that only later versions of Unicode know takes no part.
    const bool begins_with_mark =
        before < at &&
        utf8proc_get_property(static_cast<int32_t>(code_point(text, before).value))->combining_class != 0;
    if (before < copied || begins_with_mark) before = std::max(copied, at);
    buffer += text.substr(copied, before - copied);
    append_nfc(text.substr(before, end - before), buffer);
    copied = before = at = end;
  }
  if (copied == 0) return text;
  buffer += text.substr(copied);
  return buffer;
}

}  // namespace drivetrain::bpe
