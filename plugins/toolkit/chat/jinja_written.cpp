// Values as texts: Python's str and repr, and json.dumps.
#include <algorithm>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text/utf8.h>

#include "jinja_value.h"

namespace drivetrain::jinja {
namespace {

constexpr int kDeepestValue = 200;

std::string hex_digits(uint32_t value, int count) {
  std::string text;
  for (int shift = 4 * (count - 1); shift >= 0; shift -= 4) text += "0123456789abcdef"[value >> shift & 15];
  return text;
}

// Characters that Python writes as escapes: controls, and blanks other than the usual one.
bool is_escaped(uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD || c == 0x1680 || (c >= 0x2000 && c <= 0x200F) ||
         (c >= 0x2028 && c <= 0x202F) || (c >= 0x205F && c <= 0x206F) || c == 0x3000 || c == 0xFEFF ||
         (c >= 0xE000 && c <= 0xF8FF);
}

std::string quoted(const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point(text, at);
    if (c.value == static_cast<uint32_t>(quote) || c.value == '\\')
      out += concat('\\', text[at]);
    else if (c.value == '\n' || c.value == '\r' || c.value == '\t')
      out += c.value == '\n' ? "\\n" : c.value == '\r' ? "\\r" : "\\t";
    else if (is_escaped(c.value))
      out += c.value < 0x100 ? "\\x" + hex_digits(c.value, 2) : "\\u" + hex_digits(c.value, 4);
    else
      out.append(text, at, c.length);
    at += c.length;
  }
  return out + quote;
}

template <class Range, class Write>
std::string listed(const Range& range, const char* open, const char* close, const Write& write) {
  std::string out = open;
  for (const auto& item : range) out += concat(out.size() > 1 ? ", " : "", write(item));
  return out + close;
}

std::string written(const Var& v, int depth) {
  if (depth > kDeepestValue) throw Problem{"a value is nested too deeply to be written"};
  const auto deeper = [&](const Var& item) { return written(item, depth + 1); };
  if (const auto* s = v.get<std::string>()) return quoted(*s);
  if (const auto* l = v.get<List>()) {
    if (l->lazy) throw Problem{"a list that a filter makes step by step is written out; put |list behind it"};
    if (!l->tuple) return listed(l->items, "[", "]", deeper);
    return listed(l->items, "(", l->items.size() == 1 ? ",)" : ")", deeper);
  }
  if (const auto* d = v.get<Dict>())
    return listed(d->members, "{", "}",
                  [&](const auto& member) { return concat(quoted(member.first), ": ", deeper(member.second)); });
  if (v.is_undefined()) return "Undefined";
  return str(v);
}

void append_json_text(const std::string& text, bool ascii, std::string& out) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point(text, at);
    constexpr std::string_view plain = "\"\\\b\f\n\r\t", letters = "\"\\bfnrt";
    const size_t which = c.value < 0x80 ? plain.find(text[at]) : std::string_view::npos;
    if (which != std::string_view::npos)
      out += concat('\\', letters[which]);
    else if (c.value < 0x20 || (ascii && c.value > 0x7E && c.value < 0x10000 && c.value != 0x7F))
      out += "\\u" + hex_digits(c.value, 4);
    else if (ascii && c.value >= 0x10000)
      out += concat("\\u", hex_digits(0xD800 + ((c.value - 0x10000) >> 10), 4), "\\u",
                    hex_digits(0xDC00 + (c.value & 0x3FF), 4));
    else
      out.append(text, at, c.length);
    at += c.length;
  }
  out += '"';
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonForm& form) : form_(form) {}

  void write(const Var& v, int depth) {
    if (depth > kDeepestValue) throw Problem{"tojson: a value is nested too deeply"};
    if (v.is_none())
      out += "null";
    else if (const bool* b = v.get<bool>())
      out += *b ? "true" : "false";
    else if (const double* d = v.get<double>())
      out += float_text(*d, "Infinity", "NaN");
    else if (v.is_integer())
      out += str(v);
    else if (const auto* s = v.get<std::string>())
      append_json_text(*s, form_.ascii, out);
    else if (const auto* l = v.get<List>(); l && !l->lazy)
      between("[", "]", l->items, depth, [&](const Var& item) { write(item, depth + 1); });
    else if (const auto* o = v.get<Dict>())
      object(*o, depth);
    else
      throw Problem{concat("tojson: ", v.type_name(), " cannot be written as JSON")};
  }
  std::string out;

 private:
  template <class Range, class Write>
  void between(const char* open, const char* close, const Range& range, int depth, const Write& each) {
    out += open;
    bool first = true;
    for (const auto& item : range) {
      if (!first) out += form_.between;
      line(depth + 1);
      each(item);
      first = false;
    }
    if (!first) line(depth);
    out += close;
  }
  void line(int depth) {
    if (!form_.lines) return;
    out += '\n';
    for (int i = 0; i < depth; ++i) out += form_.indent;
  }
  void object(const Dict& dict, int depth) {
    auto members = dict.members;
    if (form_.sorted)
      std::stable_sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    between("{", "}", members, depth, [&](const auto& member) {
      append_json_text(member.first, form_.ascii, out);
      out += form_.behind_key;
      write(member.second, depth + 1);
    });
  }

  const JsonForm& form_;
};

}  // namespace

std::string str(const Var& v) {
  if (const auto* s = v.get<std::string>()) return *s;
  if (v.is_undefined()) return "";
  if (v.is_none()) return "None";
  if (const bool* b = v.get<bool>()) return *b ? "True" : "False";
  if (const int64_t* i = v.get<int64_t>()) return std::to_string(*i);
  if (const double* d = v.get<double>()) return float_text(*d, "inf", "nan");
  if (v.get<List>() || v.get<Dict>()) return written(v, 0);
  throw Problem{concat(v.type_name(), " is written out where a text is wanted")};
}

std::string repr(const Var& v) { return written(v, 0); }

std::string to_json(const Var& v, const JsonForm& form) {
  JsonWriter writer(form);
  writer.write(v, 0);
  return std::move(writer.out);
}

}  // namespace drivetrain::jinja
