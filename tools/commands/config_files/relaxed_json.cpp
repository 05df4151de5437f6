#include "config_files/relaxed_json.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>

#include "base/input_file.h"
#include "base/json_cursor.h"
#include "base/json_read.h"
#include "base/printable.h"
#include "base/templates.h"
#include "base/value_error.h"
#include "config_files/foreign_files.h"
#include "config_files/hjson.h"

namespace drivetrain {
namespace {

Position position_of(const std::string& text, size_t offset, const std::string& file) {
  JsonCursor cursor(text, 0);
  cursor.move_to(offset);
  return {file, cursor.line(), cursor.column()};
}

std::string without_comma(const std::string& text) {
  return text.ends_with(',') ? text.substr(0, text.find_last_not_of(", \t") + 1) : text;
}

// What a text without quotation marks cannot be meant as; "" if it may be one.
std::string misreading(const std::string& text) {
  const std::string word = without_comma(text);
  if (is_placeholder(word))
    return concat("this is a template: ", shown(word), " stands for a value\n   put the value in its place");
  for (const auto& [python, json] : {std::pair{"True", "true"}, {"False", "false"}, {"None", "null"}})
    if (word == python) return concat(python, " is Python's\n   write ", json);
  for (const char* number : {"NaN", "nan", "Infinity", "-Infinity", "inf", "-inf", "Inf", "-Inf"})
    if (word == number) return concat(number, " is no number of JSON: numbers must be finite");
  if (text.ends_with(',') && is_mark(word))
    return concat("this is a template if ", shown(word), " stands for a value\n   put the value in its place; a text ",
                  "wants quotation marks: \"", shown(word), "\",");
  if (text.ends_with(','))
    return concat("a text without quotation marks goes on to the end of its line, comma included: `", shown(text),
                  "`\n   write \"", shown(word), "\",");
  return {};
}

void judge_bare_texts(const Hjson& hjson, const Problem& syntax, Problems& problems) {
  bool wrong = false;
  for (const Value& text : hjson.bare_texts) {
    const std::string what = misreading(text.as_string());
    if (what.empty()) continue;
    problems.add(text.where, what);
    wrong = true;
  }
  if (!wrong)
    problems.note(syntax.where,
                  concat("the file is no JSON and is read as Hjson, as DeepSpeed does; other programs refuse it\n   ",
                         syntax.message));
}

// Ends of the first object of the text, where it closes; npos where it does not.
size_t end_of_first_object(const std::string& text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = text.find('{'); i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\')
      ++i;
    else if (c == '"')
      quoted = !quoted;
    else if (!quoted && (c == '{' || c == '['))
      ++depth;
    else if (!quoted && (c == '}' || c == ']') && --depth == 0)
      return i + 1;
  }
  return std::string::npos;
}

// What people have instead of a config, told by its shape.
std::optional<Problem> other_text(const std::string& text, const std::string& file) {
  if (const auto mark = find_placeholder(text))
    return Problem{
        position_of(text, mark->first, file),
        concat("this is a template: ", shown(mark->second), " stands for a value\n   fill in its placeholders first")};
  const size_t first = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (first == std::string::npos)
    return Problem{{file, 1, 1}, "the file is empty; wanted an object of settings, {...}"};
  if (const std::string base64 = base64_hint(text); !base64.empty()) return Problem{{file, 1, 1}, base64};
  if (text[first] == '"' && text.find(':', first) != std::string::npos)
    return Problem{{file, 1, 1}, "the outer { is missing: a config is one object of settings, {...}"};
  const size_t end = text[first] == '{' ? end_of_first_object(text) : std::string::npos;
  const size_t next = end == std::string::npos ? end : text.find_first_not_of(" \t\r\n", end);
  if (next != std::string::npos && (text[next] == '{' || text.compare(next, 3, "---") == 0))
    return Problem{position_of(text, next, file),
                   "a second document begins here, and a config is one object\n   make two files of it"};
  return {};
}

}  // namespace

// `{"` begins with these letters.
std::string base64_hint(const std::string& text) {
  const bool all = text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=\r\n") ==
                   std::string::npos;
  if (text.size() < 8 || !text.starts_with("eyJ") || !all) return {};
  return "this is a config in base64, as DeepSpeed's launcher passes one on; a file of JSON is wanted\n   decode it: "
         "base64 -d <<< TEXT > config.json";
}

Value read_relaxed(const std::string& text, const std::string& file, const Problem& syntax, Problems& problems) {
  if (const std::string foreign = foreign_text(text); !foreign.empty()) {
    problems.add({file, 1, 1}, foreign);
    return {};
  }
  Hjson hjson;
  Problem again;
  Problems doubled;
  if (read_hjson(text, file, hjson, again, doubled) && hjson.value.is_object() && !hjson.value.members().empty()) {
    for (const Problem& p : doubled.list()) problems.add(p.where, p.message);
    judge_bare_texts(hjson, syntax, problems);
    return hjson.value;
  }
  const auto other = other_text(text, file);
  problems.add(other ? other->where : syntax.where, other ? other->message : syntax.message);
  return {};
}

Value read_config_file(const std::string& path, Problems& problems) {
  std::error_code unknown;
  if (const std::string hint = base64_hint(path); !hint.empty() && !std::filesystem::exists(path, unknown))
    throw fail(ErrorCode::config, shown(path), ": ", hint);
  const std::string text = read_text(path, InputKind::file_or_pipe, "a JSON file");
  Value value;
  Problem syntax;
  Problems strict;  // those of the part that was read
  if (read_json(text, path, JsonPositions::lines, value, syntax, strict)) {
    if (const std::string foreign = foreign_object(value); !foreign.empty()) throw ValueError({path, 1, 1}, foreign);
    for (const Problem& p : strict.list()) problems.add(p.where, p.message);
    return value;
  }
  const size_t before = problems.list().size();
  value = read_relaxed(text, path, syntax, problems);
  if (problems.list().size() > before) problems.throw_if_any();
  return value;
}

}  // namespace drivetrain
