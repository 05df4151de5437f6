// RapidJSON's SAX reader builds the Value. A cursor of our own runs beside it over the same text, because the reader
// tells where a token ended at best, and people look for where it begins.
#include "base/json_read.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <unordered_map>

#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

#include "base/input_file.h"
#include "base/json_cursor.h"
#include "base/printable.h"

namespace drivetrain {
namespace {

constexpr size_t kMaxDepth = 128;
constexpr size_t kMostValues = 2'000'000;  // each takes some 200 bytes here

// Builds the Value bottom up on a stack of open containers.
class JsonBuilder : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, JsonBuilder> {
 public:
  JsonBuilder(const std::string& text, size_t start, const std::string& file, JsonPositions positions,
              Problems& problems)
      : cursor_(text, start), file_(file), positions_(positions), problems_(problems) {}

  bool Null() { return scalar(Value()); }
  bool Bool(bool b) { return scalar(Value(b)); }
  bool String(const char* s, rapidjson::SizeType n, bool) {
    std::string text(s, n);
    const Position where = next_token();
    check_characters(text, where);
    return put(Value(std::move(text)), where);
  }
  bool RawNumber(const char*, rapidjson::SizeType, bool) {
    const Position where = next_token();
    return put(number(where), where);
  }
  bool StartObject() { return open(Value::object()); }
  bool StartArray() { return open(Value::array()); }
  bool EndObject(rapidjson::SizeType) { return close(); }
  bool EndArray(rapidjson::SizeType) { return close(); }

  bool Key(const char* s, rapidjson::SizeType n, bool) {
    Frame& frame = stack_.back();
    frame.key.assign(s, n);
    frame.key_where = next_token();
    check_characters(frame.key, frame.key_where);
    const auto [first, fresh] = frame.seen.emplace(frame.key, frame.key_where);
    frame.repeated = !fresh;
    if (!fresh) {
      problems_.add(frame.key_where, concat("key \"", shown(frame.key), "\" is given twice; the first is at ",
                                            first->second.text(), "\n   remove one of them"));
    }
    return true;
  }

  Value take() { return std::move(root_); }
  bool too_deep() const { return too_deep_; }
  bool too_many() const { return too_many_; }

  // Where the token begins that the reader was in when it stopped, and its offset in the text.
  std::pair<Position, size_t> stopped_at() {
    if (!too_deep_) cursor_.skip_to_token();
    return {too_deep_ ? deepest_ : here(), cursor_.offset()};
  }

 private:
  struct Frame {
    Value value;
    std::string key;
    Position key_where;
    std::unordered_map<std::string, Position> seen;
    bool repeated = false;  // the key at hand was there before
  };

  Position here() const {
    if (positions_ == JsonPositions::none) return {file_, 0, 0};
    return {file_, cursor_.line(), cursor_.column()};
  }
  Position next_token() {
    cursor_.skip_to_token();
    const Position where = here();
    token_ = cursor_.take_token();
    return where;
  }

  Value number(const Position& where) {
    const char *begin = token_.data(), *end = begin + token_.size();
    const bool integer = token_.find_first_of(".eE") == std::string::npos;
    int64_t whole = 0;
    double real = 0;
    const auto result = integer ? std::from_chars(begin, end, whole) : std::from_chars(begin, end, real);
    if (result.ec == std::errc() && result.ptr == end) return integer ? Value(whole) : Value(real);
    problems_.add(where, concat("number ", shown(std::string(token_)), " is out of range for a ",
                                integer ? "64-bit integer" : "double"));
    return Value(0);
  }

  // The reader takes the second half of a surrogate pair alone, "\\ude00"; what it makes of it is no UTF-8, which
  // nobody could read again.
  void check_characters(const std::string& text, const Position& where) {
    for (size_t at = text.find('\xED'); at != std::string::npos; at = text.find('\xED', at + 1))
      if (at + 1 < text.size() && static_cast<unsigned char>(text[at + 1]) >= 0xA0)
        return problems_.add(
            where, concat("\"", shown(text), "\" has half of a character: one of \\udc00 to \\udfff without one of ",
                          "\\ud800 to \\udbff before it"));
  }

  bool scalar(Value value) {
    const Position where = next_token();
    return put(std::move(value), where);
  }
  bool open(Value value) {
    value.where = deepest_ = next_token();
    too_deep_ = stack_.size() == kMaxDepth;
    if (!too_deep_) stack_.push_back({std::move(value), {}, {}, {}, false});
    return !too_deep_;
  }
  bool close() {
    next_token();
    Value value = std::move(stack_.back().value);
    stack_.pop_back();
    const Position where = value.where;
    return put(std::move(value), where);
  }
  bool put(Value value, const Position& where) {
    value.where = where;
    too_many_ = ++values_ > kMostValues;
    if (too_many_) return false;
    if (stack_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Frame& frame = stack_.back();
    if (frame.value.is_array()) {
      frame.value.items().push_back(std::move(value));
    } else if (!frame.repeated) {  // the problem is told; the first value stands
      value.key_where = frame.key_where;
      frame.value.members().push_back({frame.key, std::move(value)});
    }
    return true;
  }

  JsonCursor cursor_;
  const std::string& file_;
  const JsonPositions positions_;
  Problems& problems_;
  std::vector<Frame> stack_;
  std::string_view token_;
  size_t values_ = 0;
  Value root_;
  bool too_deep_ = false, too_many_ = false;
  Position deepest_;
};

// The rest of the line at `offset`, shortened, for `found ...`.
std::string found_text(const std::string& text, size_t offset) {
  if (offset >= text.size()) return "the end of the text";
  const std::string rest = text.substr(offset, std::min<size_t>(24, text.find_first_of("\r\n", offset) - offset));
  return rest.empty() ? "the end of the line" : "`" + shown(rest) + "`";
}

std::string json_hint(const std::string& text, size_t offset) {
  static const std::pair<const char*, const char*> hints[] = {
      {"NaN", "numbers must be finite"},
      {"nan", "numbers must be finite"},
      {"Inf", "numbers must be finite"},
      {"-Inf", "numbers must be finite"},
      {"inf", "numbers must be finite"},
      {"True", "write true"},
      {"False", "write false"},
      {"None", "write null"},
      {"'", "strings take double quotes"},
      {"#", "comments begin with //"},
  };
  for (const auto& [word, hint] : hints) {
    if (text.compare(offset, std::strlen(word), word) == 0) return std::string("\n   ") + hint;
  }
  return "";
}

// Errors inside a token that are best shown where it begins: `NaN`, a string without an end, 1e999.
bool is_about_token(rapidjson::ParseErrorCode code, bool line_break) {
  return code == rapidjson::kParseErrorValueInvalid || code == rapidjson::kParseErrorNumberTooBig ||
         code == rapidjson::kParseErrorStringMissQuotationMark || line_break;
}

std::string syntax_reason(rapidjson::ParseErrorCode code, bool line_break) {
  if (line_break) return "a string may not hold a line break; is its closing quotation mark missing?";
  if (code == rapidjson::kParseErrorUnspecificSyntaxError)
    return "a comment without its end (*/), or a / that begins none";
  std::string reason = rapidjson::GetParseError_En(code);
  reason.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(reason.front())));
  if (reason.back() == '.') reason.pop_back();
  return reason;
}

Problem syntax_problem(const rapidjson::ParseResult& result, const std::string& text, size_t start,
                       const std::string& file, JsonPositions positions, JsonBuilder& builder) {
  auto [where, offset] = builder.stopped_at();
  if (builder.too_many()) return {where, concat("more than ", kMostValues, " values; this is no file of settings")};
  if (builder.too_deep()) return {where, concat("nested deeper than ", kMaxDepth, " levels")};
  const size_t exact = start + result.Offset();
  const bool line_break = result.Code() == rapidjson::kParseErrorStringEscapeInvalid && exact < text.size() &&
                          (text[exact] == '\n' || text[exact] == '\r');
  if (!is_about_token(result.Code(), line_break)) {
    JsonCursor cursor(text, start);
    cursor.move_to(exact);
    offset = exact;
    if (positions == JsonPositions::lines) where = {file, cursor.line(), cursor.column()};
  }
  return {where, concat("not valid JSON: ", syntax_reason(result.Code(), line_break), "; found ",
                        found_text(text, offset), json_hint(text, offset))};
}

}  // namespace

bool read_json(const std::string& text, const std::string& file, JsonPositions positions, Value& value, Problem& syntax,
               Problems& problems) {
  constexpr unsigned kFlags = rapidjson::kParseCommentsFlag | rapidjson::kParseTrailingCommasFlag |
                              rapidjson::kParseFullPrecisionFlag | rapidjson::kParseNumbersAsStringsFlag |
                              rapidjson::kParseValidateEncodingFlag;
  const size_t start = text.compare(0, 3, "\xEF\xBB\xBF") == 0 ? 3 : 0;  // a byte order mark
  rapidjson::MemoryStream stream(text.data() + start, text.size() - start);
  rapidjson::Reader reader;
  JsonBuilder builder(text, start, file, positions, problems);
  const rapidjson::ParseResult result = reader.Parse<kFlags>(stream, builder);
  value = result ? builder.take() : Value();
  if (!result) syntax = syntax_problem(result, text, start, file, positions, builder);
  return static_cast<bool>(result);
}

}  // namespace drivetrain
