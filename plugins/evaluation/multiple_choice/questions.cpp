#include "questions.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/read_file.h>
#include <drivetrain/toolkit/text/json_line.h>
#include <drivetrain/toolkit/text/packed_file.h>

namespace drivetrain::multiple_choice {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 32;
constexpr double kMostExact = 9007199254740992;  // 2^53; not a number and infinity are not below it either

// One line of a file, for messages.
struct Line {
  const std::string& where;
  template <class... Text>
  Error wrong(const Text&... text) const {
    return fail(ErrorCode::config, "evaluation/multiple_choice: ", where, ": ", text...);
  }
};

std::string keys_of(const Value& object) {
  std::string keys;
  for (const Value::Member& m : object.members()) keys += concat(keys.empty() ? "\"" : ", \"", m.key, "\"");
  return keys.empty() ? "no fields" : keys;
}

const Value& field(const Value& item, const std::string& path, const char* option, const Line& line) {
  const Value* at = &item;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const Value* const next = used_member(*at, path.substr(begin, end - begin), line.where);
    if (!next)
      throw line.wrong("has no field \"", path, "\"; it has ", at->is_object() ? keys_of(*at) : at->type_name(),
                       "\n   say with the option \"", option, "\" what the field is called");
    at = next, begin = end + 1;
  }
  return *at;
}

std::string text_of(const Value& value, const std::string& path, const Line& line) {
  if (value.is_string()) return used_text(value, path, line.where);
  if (value.is_int()) return value.to_json();
  if (value.is_number() && std::abs(value.as_double()) < kMostExact) return value.to_json();
  if (value.is_number())
    throw line.wrong("the field \"", path, "\" is a number that cannot be written as it was; put it into quotes");
  throw line.wrong("the field \"", path, "\" is ", value.type_name(), "; wanted a text");
}

std::string filled_in(const std::string& prompt, const Value& item, const Line& line) {
  std::string text;
  for (size_t at = 0; at < prompt.size();) {
    const size_t open = std::min(prompt.find('{', at), prompt.size()), close = prompt.find('}', open);
    text += prompt.substr(at, open - at);
    if (open == prompt.size()) break;
    if (close == std::string::npos)
      throw fail(ErrorCode::config, "evaluation/multiple_choice: prompt is \"", prompt, "\", where a { is not closed");
    const std::string path = prompt.substr(open + 1, close - open - 1);
    text += text_of(field(item, path, "prompt", line), path, line);
    at = close + 1;
  }
  return text;
}

std::vector<std::string> texts_of(const Value& item, const std::string& path, const char* option, const Line& line) {
  const Value& list = field(item, path, option, line);
  if (!list.is_array()) throw line.wrong("the field \"", path, "\" is ", list.type_name(), "; wanted a list of texts");
  std::vector<std::string> texts;
  for (const Value& one : list.items()) texts.push_back(text_of(one, path, line));
  return texts;
}

std::optional<int64_t> number_of(const Value& label) {
  if (label.is_int()) return label.as_int();
  if (!label.is_string() || label.as_string().empty() || label.as_string().size() > 9) return std::nullopt;
  const std::string& text = label.as_string();
  const bool digits = std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
  return digits ? std::optional<int64_t>(std::stoll(text)) : std::nullopt;
}

// By its name where the line names its choices; else its number from 0, or a letter from A.
int64_t right_choice(const Value& item, const Fields& fields, size_t choices, const Line& line) {
  const Value& label = field(item, fields.label, "label", line);
  if (!fields.names.empty()) {
    const std::vector<std::string> names = texts_of(item, fields.names, "names", line);
    const auto found = std::find(names.begin(), names.end(), text_of(label, fields.label, line));
    if (names.size() != choices)
      throw line.wrong("the field \"", fields.names, "\" has ", names.size(), " names for ", choices, " choices");
    if (found == names.end()) throw line.wrong("the label ", label.to_json(), " is none of the names of its choices");
    return found - names.begin();
  }
  std::optional<int64_t> number = number_of(label);
  if (!number && label.is_string() && label.as_string().size() == 1 && label.as_string()[0] >= 'A' &&
      label.as_string()[0] <= 'Z')
    number = label.as_string()[0] - 'A';
  if (!number)
    throw line.wrong("the label is ", label.to_json(),
                     "; wanted the number of the right choice, from 0, or its letter, ",
                     "from \"A\"\n   if the choices have names of their own, say with the option \"names\" where");
  if (*number < 0 || *number >= static_cast<int64_t>(choices))
    throw line.wrong("the label ", label.to_json(), " is out of range: there are ", choices,
                     " choices, numbered from 0");
  return *number;
}

Question read_question(const Value& item, const Fields& fields, const std::string& where) {
  const Line line{where};
  if (!item.is_object()) throw line.wrong("is ", item.type_name(), "; wanted an object");
  Question question;
  question.where = where;
  question.prompt = filled_in(fields.prompt, item, line);
  question.choices = texts_of(item, fields.choices, "choices", line);
  if (question.choices.size() < 2) throw line.wrong("has ", question.choices.size(), " choices; wanted two or more");
  for (size_t i = 0; i < question.choices.size(); ++i)
    if (question.choices[i].empty()) throw line.wrong("choice ", i, " is empty, so that it cannot be scored");
  question.right = right_choice(item, fields, question.choices.size(), line);
  return question;
}

Value parse_line(const std::string& text, const std::string& file, int64_t number) {
  try {
    return parse_json_line(text);
  } catch (const Error& e) {
    throw fail(ErrorCode::io, "evaluation/multiple_choice: ", file, ":", number, ": ", e.what(),
               "\n   every line has to be one JSON object");
  }
}

}  // namespace

std::vector<Question> read_questions(const std::vector<std::string>& files, const Fields& fields,
                                     std::optional<int64_t> limit) {
  std::vector<Question> questions;
  const auto enough = [&] { return limit && static_cast<int64_t>(questions.size()) >= *limit; };
  for (const std::string& path : files) {
    const auto whole = read_file(path, kMostBytes, ErrorCode::io);
    if (!whole) throw fail(ErrorCode::io, "evaluation/multiple_choice: ", path, " is not there");
    refuse_packed(*whole, "evaluation/multiple_choice", path);
    std::istringstream file(*whole);
    std::string text;
    for (int64_t number = 1; !enough() && std::getline(file, text); ++number) {
      if (is_blank_line(text)) continue;
      questions.push_back(read_question(parse_line(text, path, number), fields, concat(path, ":", number)));
    }
  }
  return questions;
}

}  // namespace drivetrain::multiple_choice
