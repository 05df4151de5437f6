#include "jinja_lexer.h"

#include <algorithm>
#include <cctype>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text/utf8.h>

#include "jinja_text.h"

namespace drivetrain::jinja {
namespace {

constexpr std::string_view kSigns[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                       "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool begins_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || (c & 0x80); }
bool in_name(char c) { return begins_name(c) || std::isdigit(static_cast<unsigned char>(c)); }

// Line ends are "\n", and the last one does not count.
std::string with_plain_line_ends(std::string_view source) {
  std::string text;
  for (size_t i = 0; i < source.size(); ++i) {
    text += source[i] == '\r' ? '\n' : source[i];
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& where) : text_(with_plain_line_ends(source)), where_(where) {}

  std::vector<Token> all() {
    if (valid_utf8(text_) != text_.size()) throw wrong("it is not valid UTF-8");
    while (at_ < text_.size()) data();
    tokens_.push_back({TokenKind::end, "", line_});
    return std::move(tokens_);
  }

 private:
  Error wrong(const std::string& what) const {
    return fail(ErrorCode::config, where_, ", line ", line_, ": the chat template does not parse: ", what);
  }
  bool here(std::string_view word) const { return std::string_view(text_).substr(at_).starts_with(word); }
  bool take(std::string_view word) {
    if (!here(word)) return false;
    go(at_ + word.size());
    return true;
  }
  void go(size_t to) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    starts_line_ = to > at_ ? text_[to - 1] == '\n' : starts_line_;
    at_ = to;
  }
  void blanks() {
    size_t to = at_;
    while (to < text_.size() && is_blank(code_point(text_, to).value)) to += code_point(text_, to).length;
    go(to);
  }
  void add(TokenKind kind, std::string text = "") { tokens_.push_back({kind, std::move(text), line_}); }
  void add_data(std::string_view text) {
    if (!text.empty()) add(TokenKind::data, std::string(text));
  }

  // What is written of the text in front of a tag.
  std::string_view kept(std::string_view text, char control, bool is_variable) const {
    if (control == '-') return stripped(text, Side::right);
    if (control == '+' || is_variable) return text;
    const size_t line = text.rfind('\n') + 1;
    const bool only_blanks = line < text.size() && stripped(text.substr(line), Side::both).empty();
    return (line > 0 || starts_line_) && only_blanks ? text.substr(0, line) : text;
  }
  char control() const { return at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+') ? text_[at_] : '\0'; }

  // A text up to the next tag, and the tag.
  void data() {
    size_t tag = text_.find('{', at_);
    while (tag != std::string::npos &&
           (tag + 1 == text_.size() || std::string_view("{%#").find(text_[tag + 1]) == std::string_view::npos))
      tag = text_.find('{', tag + 1);
    if (tag == std::string::npos) {
      add_data(std::string_view(text_).substr(at_));
      return go(text_.size());
    }
    const std::string_view before = std::string_view(text_).substr(at_, tag - at_);
    const char kind = text_[tag + 1], sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    add_data(kept(before, sign, kind == '{'));
    go(tag + 2);
    if (control()) go(at_ + 1);
    if (kind == '#') return comment();
    if (kind == '%' && raw()) return;
    inside(kind == '{');
  }
  void comment() {
    const size_t end = text_.find("#}", at_);
    if (end == std::string::npos) throw wrong("a comment has no end");
    const char sign = text_[end - 1];
    go(end + 2);
    behind_block(sign);
  }
  void behind_block(char sign) {
    if (sign == '-') return blanks();
    if (sign != '+' && here("\n")) go(at_ + 1);
  }
  // {% raw %}: all up to {% endraw %} is data.
  bool raw() {
    const size_t before = at_;
    const int line = line_;
    const bool started = starts_line_;
    blanks();
    if (here("raw")) {
      go(at_ + 3), blanks();
      const bool strips = here("-%}");
      if (take("-%}") || take("%}")) {
        if (strips) blanks();
        raw_body();
        return true;
      }
    }
    at_ = before, line_ = line, starts_line_ = started;
    return false;
  }
  void raw_body() {
    for (size_t tag = text_.find("{%", at_); tag != std::string::npos; tag = text_.find("{%", tag + 2)) {
      size_t to = tag + 2;
      const char sign = to < text_.size() && (text_[to] == '-' || text_[to] == '+') ? text_[to] : '\0';
      if (sign) ++to;
      to = text_.find_first_not_of(" \t\n", to);
      if (to == std::string::npos || text_.compare(to, 6, "endraw") != 0) continue;
      to = text_.find_first_not_of(" \t\n", to + 6);
      const size_t end = to == std::string::npos ? to : text_.find("%}", to);
      if (end == std::string::npos || end > to + 1) continue;
      add_data(kept(std::string_view(text_).substr(at_, tag - at_), sign, false));
      go(end + 2);
      return behind_block(end > to ? text_[to] : '\0');
    }
    throw wrong("{% raw %} has no {% endraw %}");
  }

  // A variable or a block up to its end.
  void inside(bool is_variable) {
    add(is_variable ? TokenKind::variable_begin : TokenKind::block_begin);
    const std::string_view end = is_variable ? "}}" : "%}";
    std::string open;
    for (;;) {
      blanks();
      if (at_ >= text_.size()) throw wrong(concat(is_variable ? "{{" : "{%", " has no ", end));
      if (open.empty()) {
        const char sign = here("-") || (here("+") && !is_variable) ? text_[at_] : '\0';
        if (std::string_view(text_).substr(at_ + (sign ? 1 : 0)).starts_with(end)) {
          add(is_variable ? TokenKind::variable_end : TokenKind::block_end);
          go(at_ + (sign ? 1 : 0) + 2);
          if (is_variable ? sign == '-' : true) behind_block(sign);
          return;
        }
      }
      token(open);
    }
  }
  void token(std::string& open) {
    const char c = text_[at_];
    if (std::isdigit(static_cast<unsigned char>(c))) return number();
    if (begins_name(c)) {
      size_t to = at_;
      while (to < text_.size() && in_name(text_[to])) ++to;
      add(TokenKind::name, text_.substr(at_, to - at_));
      return go(to);
    }
    if (c == '"' || c == '\'') return quoted_text(c);
    for (const std::string_view sign : kSigns)
      if (here(sign)) {
        balance(sign[0], open);
        add(TokenKind::sign, std::string(sign));
        return go(at_ + sign.size());
      }
    throw wrong(concat("a character \"", c, "\" stands where none is wanted"));
  }
  void balance(char c, std::string& open) const {
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (open.empty() || open.back() != c) throw wrong(concat("\"", c, "\" closes nothing that is open"));
    open.pop_back();
  }
  void number() {
    const auto digits = [&](size_t from) {
      while (from < text_.size() && (std::isdigit(static_cast<unsigned char>(text_[from])) || text_[from] == '_'))
        ++from;
      return from;
    };
    size_t to = digits(at_);
    bool whole = true;
    if (to + 1 < text_.size() && text_[to] == '.' && std::isdigit(static_cast<unsigned char>(text_[to + 1])))
      to = digits(to + 1), whole = false;
    if (to + 1 < text_.size() && (text_[to] | 32) == 'e') {
      const size_t sign = to + (text_[to + 1] == '-' || text_[to + 1] == '+' ? 2 : 1);
      if (const size_t end = digits(sign); end > sign) to = end, whole = false;
    }
    std::string text = text_.substr(at_, to - at_);
    std::erase(text, '_');
    if (to < text_.size() && begins_name(text_[to])) throw wrong(concat("\"", text, text_[to], "\" is no number"));
    add(whole ? TokenKind::integer : TokenKind::number, std::move(text));
    go(to);
  }

  void quoted_text(char quote) {
    std::string meaning;
    size_t at = at_ + 1;
    for (; at < text_.size() && text_[at] != quote; ++at) {
      if (text_[at] != '\\' || at + 1 == text_.size())
        meaning += text_[at];
      else
        escape(++at, meaning);
    }
    if (at >= text_.size()) throw wrong("a text has no closing quote");
    add(TokenKind::text, std::move(meaning));
    go(at + 1);
  }
  // Python's escapes; a backslash before another character stays.
  void escape(size_t& at, std::string& meaning) const {
    constexpr std::string_view letters = "\\'\"abfnrtv", meanings = "\\'\"\a\b\f\n\r\t\v";
    const char c = text_[at];
    if (c == '\n') return;
    if (const size_t which = letters.find(c); which != std::string_view::npos) return void(meaning += meanings[which]);
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (c == 'N') throw wrong("\\N{...} in a text is not supported; write the character");
    if (digits > 0) return code(at, digits, 16, meaning);
    if (c >= '0' && c <= '7') return --at, code(at, 3, 8, meaning);
    meaning += concat('\\', c);
  }
  void code(size_t& at, size_t most, uint32_t base, std::string& meaning) const {
    uint32_t value = 0;
    size_t count = 0;
    for (; count < most && at + 1 < text_.size(); ++count, ++at) {
      const int c = std::tolower(static_cast<unsigned char>(text_[at + 1]));
      const uint32_t digit = std::isdigit(c) ? static_cast<uint32_t>(c - '0') : static_cast<uint32_t>(c - 'a' + 10);
      if (!std::isxdigit(c) || digit >= base) break;
      value = value * base + digit;
    }
    if (base == 16 && count < most) throw wrong("an escape in a text has too few digits");
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) throw wrong("an escape in a text is no character");
    append_code_point(value, meaning);
  }

  const std::string text_;
  const std::string& where_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int line_ = 1;
  bool starts_line_ = true;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const std::string& where) { return Lexer(source, where).all(); }

}  // namespace drivetrain::jinja
