#include "jinja_text.h"

#include <clocale>
#include <cwctype>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text/utf8.h>

#include "jinja_value.h"

namespace drivetrain::jinja {
namespace {

bool ends_line(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

// Letters whose other case is several characters, or depends on what stands around them.
bool changes_length(uint32_t c, bool up) {
  if (!up) return c == 0x130 || c == 0x3A3;
  return c == 0xDF || c == 0x149 || c == 0x1F0 || c == 0x390 || c == 0x3B0 || c == 0x587 ||
         (c >= 0x1E96 && c <= 0x1E9A) || (c >= 0x1F50 && c <= 0x1FFC) || (c >= 0xFB00 && c <= 0xFB17);
}

locale_t unicode() {
  static const locale_t found = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (!found) throw Problem{"the case of letters beyond ASCII needs the locale C.UTF-8, which this system lacks"};
  return found;
}

uint32_t cased(uint32_t c, bool up) {
  if (c < 0x80) return up ? (c >= 'a' && c <= 'z' ? c - 32 : c) : (c >= 'A' && c <= 'Z' ? c + 32 : c);
  if (changes_length(c, up)) throw Problem{"the case of a text is changed that has a letter with no single other case"};
  return static_cast<uint32_t>(up ? towupper_l(static_cast<wint_t>(c), unicode())
                                  : towlower_l(static_cast<wint_t>(c), unicode()));
}

bool is_cased(uint32_t c) { return cased(c, true) != c || cased(c, false) != c; }

std::vector<std::string_view> split_at_blanks(std::string_view text, int64_t most, bool from_end) {
  std::vector<std::string_view> parts;
  const Side next = from_end ? Side::right : Side::left;  // the far side keeps its blanks where the cuts run out
  std::string_view rest = stripped(text, next);
  while (!rest.empty() && most != 0) {
    size_t begin = std::string_view::npos, end = 0;  // of the blanks next to the cut
    for (size_t at = 0; at < rest.size(); at += code_point(rest, at).length) {
      if (!is_blank(code_point(rest, at).value)) continue;
      if (begin == std::string_view::npos || (from_end && at > end)) begin = at;
      end = at + code_point(rest, at).length;
      if (!from_end && (end >= rest.size() || !is_blank(code_point(rest, end).value))) break;
    }
    if (begin == std::string_view::npos) break;
    parts.push_back(from_end ? rest.substr(end) : rest.substr(0, begin));
    rest = from_end ? rest.substr(0, begin) : rest.substr(end);
    --most;
  }
  if (!rest.empty()) parts.push_back(rest);
  return parts;
}

}  // namespace

bool is_blank(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view stripped(std::string_view text, Side side, const std::string* set) {
  const auto goes = [&](size_t at) {
    const CodePoint c = code_point(text, at);
    return set ? set->find(text.substr(at, c.length)) != std::string::npos : is_blank(c.value);
  };
  if (side != Side::right)
    while (!text.empty() && goes(0)) text.remove_prefix(code_point(text, 0).length);
  if (side != Side::left)
    while (!text.empty()) {
      const size_t last = previous_character(text, text.size());
      if (!goes(last)) break;
      text = text.substr(0, last);
    }
  return text;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  for (size_t at = 0; at < text.size(); at += all.back().size())
    all.push_back(text.substr(at, code_point(text, at).length));
  return all;
}

int64_t length_of(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point(text, at);
    const size_t here = at;
    at += c.length;
    if (!ends_line(c.value)) continue;
    lines.push_back(text.substr(begin, here - begin));
    if (c.value == '\r' && at < text.size() && text[at] == '\n') ++at;
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::vector<std::string_view> split_text(std::string_view text, const std::string* separator, int64_t most,
                                         bool from_end) {
  std::vector<std::string_view> parts;
  if (!separator) {
    parts = split_at_blanks(text, most, from_end);
  } else {
    if (separator->empty()) throw Problem{"split: the separator is empty"};
    for (; most != 0; --most) {
      const size_t at = from_end ? text.rfind(*separator) : text.find(*separator);
      if (at == std::string_view::npos) break;
      const std::string_view behind = text.substr(at + separator->size()), before = text.substr(0, at);
      parts.push_back(from_end ? behind : before);
      text = from_end ? before : behind;
    }
    parts.push_back(text);
  }
  return from_end ? std::vector<std::string_view>(parts.rbegin(), parts.rend()) : parts;
}

std::string replaced(const std::string& text, const std::string& old, const std::string& by, int64_t most) {
  std::string out;
  if (old.empty()) {  // between all characters, as Python does
    for (const std::string_view c : characters(text)) out += concat(most-- != 0 ? by : "", c);
    return most != 0 ? out + by : out;
  }
  size_t done = 0;
  for (size_t at = text.find(old); at != std::string::npos && most != 0; at = text.find(old, done), --most) {
    out.append(text, done, at - done).append(by);
    done = at + old.size();
  }
  return out.append(text, done);
}

std::string in_case(const std::string& text, Case how) {
  std::string out;
  bool begins = true;  // of a word, or of the text
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point(text, at);
    at += c.length;
    const bool up = how == Case::upper || (begins && (how == Case::title || how == Case::capital));
    append_code_point(cased(c.value, up), out);
    begins = how == Case::title && !is_cased(c.value);
  }
  return out;
}

}  // namespace drivetrain::jinja
