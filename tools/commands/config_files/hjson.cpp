#include "config_files/hjson.h"

#include <cctype>
#include <charconv>
#include <map>

#include "base/printable.h"

namespace drivetrain {
namespace {

constexpr size_t kMaxDepth = 128;

struct SyntaxError {
  Position where;
  std::string why;
};

class HjsonReader {
 public:
  HjsonReader(const std::string& text, const std::string& file, Hjson& hjson, Problems& problems)
      : text_(text), file_(file), hjson_(hjson), problems_(problems) {
    if (text_.compare(0, 3, "\xEF\xBB\xBF") == 0) at_ = 3;
  }

  void read() {
    skip();
    if (peek() == '{' || peek() == '[') {
      hjson_.value = value(0);
    } else {
      hjson_.value = object(0, true);
    }
    skip();
    if (at_ < text_.size()) fail("something follows the end of the object");
  }

 private:
  [[noreturn]] void fail(const std::string& why) const { throw SyntaxError{here(), why}; }

  Position here() const { return {file_, line_, column_}; }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool has(const char* word) const { return text_.compare(at_, std::char_traits<char>::length(word), word) == 0; }

  void step(size_t count = 1) {
    for (; count > 0 && at_ < text_.size(); --count, ++at_) {
      const unsigned char c = static_cast<unsigned char>(text_[at_]);
      if (c == '\n')
        ++line_, column_ = 1;
      else if ((c & 0xC0) != 0x80)
        ++column_;
    }
  }

  void skip_line() {
    while (at_ < text_.size() && peek() != '\n') step();
  }

  // White space and comments.
  void skip() {
    while (at_ < text_.size()) {
      if (std::isspace(static_cast<unsigned char>(peek()))) {
        step();
      } else if (peek() == '#' || has("//")) {
        skip_line();
      } else if (has("/*")) {
        const Position begin = here();
        while (at_ < text_.size() && !has("*/")) step();
        if (at_ >= text_.size()) throw SyntaxError{begin, "a comment without its end (*/)"};
        step(2);
      } else {
        return;
      }
    }
  }

  Value value(size_t depth) {
    if (depth >= kMaxDepth) fail(concat("nested deeper than ", kMaxDepth, " levels"));
    const Position where = here();
    Value found;
    switch (peek()) {
      case '{':
        step(), found = object(depth, false);
        break;
      case '[':
        step(), found = array(depth);
        break;
      case '"':
      case '\'':
        found = Value(has("'''") ? long_text() : quoted());
        break;
      default:
        found = bare(where);
    }
    found.where = where;
    return found;
  }

  Value object(size_t depth, bool without_braces) {
    Value object = Value::object();
    object.where = here();
    std::map<std::string, Position> seen;
    while (true) {
      skip();
      if (at_ >= text_.size()) {
        if (without_braces) return object;
        fail("the text ends inside an object; its closing } is missing");
      }
      if (peek() == '}' && !without_braces) return step(), object;
      const Position key_where = here();
      const std::string name = key();
      skip();
      if (peek() != ':') fail(concat("a colon is missing behind the key \"", shown(name), "\""));
      step(), skip();
      Value own = value(depth + 1);
      own.key_where = key_where;
      const auto [first, fresh] = seen.emplace(name, key_where);
      if (fresh)
        object.members().push_back({name, std::move(own)});
      else
        problems_.add(key_where, concat("key \"", shown(name), "\" is given twice; the first is at ",
                                        first->second.text(), "\n   remove one of them"));
      skip();
      if (peek() == ',') step();
    }
  }

  Value array(size_t depth) {
    Value array = Value::array();
    while (true) {
      skip();
      if (at_ >= text_.size()) fail("the text ends inside a list; its closing ] is missing");
      if (peek() == ']') return step(), array;
      array.items().push_back(value(depth + 1));
      skip();
      if (peek() == ',') step();
    }
  }

  std::string key() {
    if (peek() == '"' || peek() == '\'') return quoted();
    std::string name;
    while (at_ < text_.size() && peek() != ':') {
      const char c = peek();
      if (std::isspace(static_cast<unsigned char>(c))) {
        skip();
        if (peek() != ':') fail(concat("a colon is missing behind \"", shown(name), "\""));
        break;
      }
      if (c == '{' || c == '}' || c == '[' || c == ']' || c == ',') fail(concat("a key is wanted, found ", c));
      name += c, step();
    }
    if (name.empty()) fail("a key is wanted");
    return name;
  }

  std::string quoted() {
    const Position begin = here();
    const char mark = peek();
    std::string json = "\"";
    for (step(); at_ < text_.size() && peek() != mark && peek() != '\n'; step()) {
      if (peek() == '\\') {
        if (peek(1) != '\'') json += '\\';
        step();
      } else if (peek() == '"') {
        json += '\\';
      }
      json += peek();
    }
    if (peek() != mark) throw SyntaxError{begin, "a text without its closing quotation mark"};
    step();
    try {
      return parse_json(json + "\"", file_).as_string();
    } catch (const Error&) {
      throw SyntaxError{begin, "a text with a wrong escape"};
    }
  }

  std::string long_text() {
    const Position begin = here();
    step(3);
    const size_t from = at_, end = text_.find("'''", at_);
    if (end == std::string::npos) throw SyntaxError{begin, "a text without its closing '''"};
    step(end + 3 - at_);
    return text_.substr(from, end - from);
  }

  // A number, true, false or null up to the next mark, else a text of all the rest of the line.
  Value bare(const Position& where) {
    const char first = peek();
    if (first == '}' || first == ']' || first == ',' || first == ':' || at_ >= text_.size())
      fail(at_ >= text_.size() ? "a value is wanted, found the end of the text"
                               : concat("a value is wanted, found ", first));
    std::string word;
    for (; at_ < text_.size() && peek() != '\n' && peek() != '\r'; step()) {
      const char c = peek();
      if (c == ',' || c == '}' || c == ']' || c == '#' || has("//") || has("/*"))
        if (const auto known = literal(word)) return *known;
      word += c;
    }
    if (const auto known = literal(word)) return *known;
    Value text(trimmed(word));
    text.where = where;
    hjson_.bare_texts.push_back(text);
    return text;
  }

  static std::string trimmed(const std::string& word) {
    const size_t end = word.find_last_not_of(" \t");
    return end == std::string::npos ? "" : word.substr(0, end + 1);
  }

  static std::optional<Value> literal(const std::string& untrimmed) {
    const std::string word = trimmed(untrimmed);
    if (word == "true") return Value(true);
    if (word == "false") return Value(false);
    if (word == "null") return Value();
    const char *begin = word.data(), *end = begin + word.size();
    if (begin == end || !(std::isdigit(static_cast<unsigned char>(*begin)) || *begin == '-')) return {};
    int64_t whole = 0;
    if (const auto r = std::from_chars(begin, end, whole); r.ec == std::errc() && r.ptr == end) return Value(whole);
    double real = 0;
    if (const auto r = std::from_chars(begin, end, real); r.ec == std::errc() && r.ptr == end) return Value(real);
    return {};
  }

  const std::string& text_;
  const std::string& file_;
  Hjson& hjson_;
  Problems& problems_;
  size_t at_ = 0;
  int line_ = 1, column_ = 1;
};

}  // namespace

bool read_hjson(const std::string& text, const std::string& file, Hjson& hjson, Problem& syntax, Problems& problems) {
  try {
    HjsonReader(text, file, hjson, problems).read();
    return true;
  } catch (const SyntaxError& e) {
    syntax = {e.where, e.why};
    return false;
  }
}

}  // namespace drivetrain
