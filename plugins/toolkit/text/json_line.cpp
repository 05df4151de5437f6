#include <drivetrain/toolkit/text/json_line.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <limits>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text/utf8.h>

namespace drivetrain {
namespace {

constexpr int kDeepest = 512;                       // Python's own limit is near 1000
constexpr std::string_view kMark = "\xEF\xBB\xBF";  // of UTF-8
constexpr const char* kBlanks = " \t\r\n";

// Recursive descent over one text.
class JsonLine {
 public:
  explicit JsonLine(std::string_view text) : text_(text) {}

  Value whole() {
    if (text_.starts_with(kMark)) at_ = kMark.size();
    if (text_.starts_with("\xFF\xFE") || text_.starts_with("\xFE\xFF"))
      throw wrong("the text is UTF-16; make it UTF-8: iconv -f UTF-16 -t UTF-8");
    Value value = any(0);
    blanks();
    if (at_ < text_.size()) throw wrong("something follows the value");
    return value;
  }

 private:
  Error wrong(const std::string& what) const {
    return fail(ErrorCode::io, "column ", at_ + 1,
                ": not valid JSON: ", at_ < text_.size() ? what : "it ends too soon");
  }
  char here() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void blanks() { at_ = std::min(text_.find_first_not_of(kBlanks, at_), text_.size()); }
  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Value any(int depth) {
    blanks();
    if (depth > kDeepest) throw wrong(concat("values are nested deeper than ", kDeepest));
    switch (here()) {
      case '{':
        return object(depth);
      case '[':
        return array(depth);
      case '"':
        return text();
      default:
        return word_or_number();
    }
  }

  Value object(int depth) {
    Value::Object members;
    ++at_, blanks();
    if (take("}")) return Value(std::move(members));
    for (;;) {
      blanks();
      if (here() != '"') throw wrong("a key is wanted");
      std::string key = string();
      blanks();
      if (!take(":")) throw wrong("a colon is wanted");
      members.push_back({std::move(key), any(depth + 1)});
      blanks();
      if (take("}")) return Value(std::move(members));
      if (!take(",")) throw wrong("a comma or } is wanted");
    }
  }

  Value array(int depth) {
    Value::Array items;
    ++at_, blanks();
    if (take("]")) return Value(std::move(items));
    for (;;) {
      items.push_back(any(depth + 1));
      blanks();
      if (take("]")) return Value(std::move(items));
      if (!take(",")) throw wrong("a comma or ] is wanted");
    }
  }

  // Where it has half of a surrogate pair, it has the place of it.
  Value text() {
    half_ = 0;
    Value value(string());
    value.where.column = half_;
    return value;
  }

  Value word_or_number() {
    if (take("true")) return Value(true);
    if (take("false")) return Value(false);
    if (take("null")) return {};
    if (take("NaN")) return Value(std::numeric_limits<double>::quiet_NaN());
    if (take("Infinity")) return Value(std::numeric_limits<double>::infinity());
    if (take("-Infinity")) return Value(-std::numeric_limits<double>::infinity());
    return number();
  }

  bool digits() {
    const size_t before = at_;
    while (here() >= '0' && here() <= '9') ++at_;
    return at_ > before;
  }
  Value number() {
    const size_t begin = at_;
    take("-");
    if (!take("0") && !digits()) throw wrong("a value is wanted");
    bool whole = true;
    if (take(".")) {
      whole = false;
      if (!digits()) throw wrong("a digit is wanted");
    }
    if (here() == 'e' || here() == 'E') {
      whole = false, ++at_;
      if (here() == '+' || here() == '-') ++at_;
      if (!digits()) throw wrong("a digit is wanted");
    }
    const std::string text(text_.substr(begin, at_ - begin));
    errno = 0;
    const long long integer = whole ? std::strtoll(text.c_str(), nullptr, 10) : 0;
    if (whole && errno == 0) return Value(static_cast<int64_t>(integer));
    return Value(std::strtod(text.c_str(), nullptr));
  }

  std::string string() {
    std::string out;
    for (++at_;;) {
      const size_t end = text_.find_first_of("\"\\", at_);
      if (end == std::string_view::npos) {
        at_ = text_.size();
        throw wrong("");
      }
      out += plain(end);
      ++at_;
      if (text_[end] == '"') return out;
      escape(out);
    }
  }
  // What stands before `end`. Python refuses control characters, too.
  std::string_view plain(size_t end) {
    const std::string_view part = text_.substr(at_, end - at_);
    for (const char c : part) {
      if (static_cast<unsigned char>(c) < 0x20) throw wrong("a control character stands in a text");
      ++at_;
    }
    return part;
  }
  void escape(std::string& out) {
    constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
    const char letter = here();
    if (letter == 'u') {
      ++at_;
      const uint32_t code = unit();
      if (code >= 0xD800 && code <= 0xDFFF) half_ = static_cast<int>(at_);
      return append_code_point(code, out);
    }
    const size_t which = letter ? letters.find(letter) : std::string_view::npos;
    if (which == std::string_view::npos) throw wrong("no such escape");
    out += meanings[which], ++at_;
  }
  uint32_t four() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = here();
      const int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
      if (digit < 0) throw wrong("four hexadecimal digits are wanted");
      code = code << 4 | static_cast<uint32_t>(digit);
    }
    return code;
  }
  uint32_t unit() {
    const uint32_t first = four();
    if (first < 0xD800 || first > 0xDBFF || text_.substr(at_, 2) != "\\u") return first;
    const size_t before = at_;
    at_ += 2;
    const uint32_t second = four();
    if (second >= 0xDC00 && second <= 0xDFFF) return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
    at_ = before;  // half of a pair, and something else behind it
    return first;
  }

  const std::string_view text_;
  size_t at_ = 0;
  int half_ = 0;  // of the text at hand: the column of half a surrogate pair; 0: there is none
};

}  // namespace

bool is_blank_line(std::string_view line) {
  if (line.starts_with(kMark)) line.remove_prefix(kMark.size());
  return line.find_first_not_of(kBlanks) == std::string_view::npos;
}

Value parse_json_line(std::string_view line) { return JsonLine(line).whole(); }

const Value* used_member(const Value& object, const std::string& key, const std::string& of) {
  if (!object.is_object()) return nullptr;
  const Value* found = nullptr;
  for (const Value::Member& member : object.members()) {
    if (member.key != key) continue;
    if (found)
      throw fail(ErrorCode::io, "key \"", key, "\" is given twice in ", of, ", and it is not clear which is meant");
    found = &member.value;
  }
  return found;
}

const Value* used_member_at(const Value& object, const std::string& path, const std::string& of) {
  if (const Value* whole = used_member(object, path, of)) return whole;
  for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1))
    if (const Value* part = used_member(object, path.substr(0, dot), of))
      if (const Value* found = used_member_at(*part, path.substr(dot + 1), concat("\"", path.substr(0, dot), "\"")))
        return found;
  return nullptr;
}

const std::string& used_text(const Value& text, const std::string& key, const std::string& of) {
  const std::string& bytes = text.as_string();
  if (text.where.column > 0)
    throw fail(ErrorCode::io, "\"", key, "\" of ", of,
               " has half of a surrogate pair, which is no character: an escape from ", "\\ud800 to \\udfff alone");
  return bytes;
}

}  // namespace drivetrain
