#include "config_files/foreign_files.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <sstream>

#include <drivetrain/error.h>

#include "base/printable.h"

namespace drivetrain {
namespace {

const char kForeignFilesText[] = {
#include "foreign_files.inc"
};

const Value& foreign_files() {
  static const auto* const files = new Value(parse_json(kForeignFilesText, "foreign_files.json"));
  return *files;
}

// Names with '_' for '-', and the values behind them as text.
using Names = std::map<std::string, std::string>;

// With <name|otherwise> filled in.
std::string filled(const std::string& text, const Names& names) {
  std::string out;
  size_t at = 0;
  for (size_t begin; (begin = text.find('<', at)) != std::string::npos;) {
    const size_t bar = text.find('|', begin), end = text.find('>', bar);
    const auto found = names.find(text.substr(begin + 1, bar - begin - 1));
    const bool given = found != names.end() && !found->second.empty();
    out += text.substr(at, begin - at) + (given ? shown(found->second) : text.substr(bar + 1, end - bar - 1));
    at = end + 1;
  }
  return out + text.substr(at);
}

std::string way_of(const Value& file, const Names& names) {
  for (const Value& way : file.find("ways")->items()) {
    const Value* const condition = way.find("if");
    if (!condition || names.contains(condition->as_string())) return filled(way.find("say")->as_string(), names);
  }
  return {};
}

// `top`: of the first level, which decides; all names have values that the way tells.
std::string told_by_names(const Names& top, const Names& names) {
  for (const Value& file : foreign_files().find("files")->items()) {
    const auto& list = file.find("names")->items();
    const auto has =
        std::count_if(list.begin(), list.end(), [&](const Value& name) { return top.contains(name.as_string()); });
    if (has >= file.find("least")->as_int())
      return concat("this is ", file.find("what")->as_string(), ", not of this program\n   ", way_of(file, names));
  }
  return {};
}

std::string told_by_form(const char* form) {
  const Value& told = *foreign_files().find("forms")->find(form);
  return concat("this is ", told.find("what")->as_string(), "\n   ", told.find("say")->as_string());
}

std::string with_lines(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string text_of(const Value& value) {
  return value.is_string() ? value.as_string() : value.is_number() ? value.to_json() : "";
}

void add_names(const Value& object, int deep, Names& names) {
  for (const Value::Member& m : object.members()) {
    names.emplace(with_lines(m.key), text_of(m.value));
    if (deep > 0 && m.value.is_object()) add_names(m.value, deep - 1, names);
  }
}

std::string without_space(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r"), end = text.find_last_not_of(" \t\r,");
  return begin == std::string::npos || end < begin || end == std::string::npos ? ""
                                                                               : text.substr(begin, end + 1 - begin);
}

std::string without_quotes(std::string text) {
  if (text.size() > 1 && (text[0] == '"' || text[0] == '\'') && text.back() == text[0])
    text = text.substr(1, text.size() - 2);
  return text;
}

// "key: value", `"key": value,`, "- key: value", "key = value" and "--key value".
void add_line(const std::string& whole, Names& names) {
  std::string line = without_space(whole.substr(0, whole.find(" #")));
  if (line.starts_with("- ")) line = without_space(line.substr(2));
  const bool argument = line.starts_with("--");
  if (argument) line = line.substr(2);
  const size_t mark = line.find_first_of(argument ? " =" : ":=");
  if (!argument && mark == std::string::npos) return;
  const std::string key = without_quotes(without_space(line.substr(0, mark)));
  const bool is_name = !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c == '.';
  });
  if (!is_name) return;
  names.emplace(with_lines(key), mark == std::string::npos ? "" : without_quotes(without_space(line.substr(mark + 1))));
}

std::string first_line_of(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (const std::string own = without_space(line); !own.empty() && (own[0] != '#' || own.starts_with("#!")))
      return own;
  return {};
}

// A block by indentation, which no JSON and no Hjson has: "key:" above a line that is no brace.
bool is_yaml(const std::string& text) {
  std::istringstream lines(text);
  bool opened = false;
  for (std::string line; std::getline(lines, line);) {
    const std::string own = without_space(line.substr(0, line.find(" #")));
    if (own.empty() || own[0] == '#') continue;
    if (own[0] == '{' || own[0] == '[' || own[0] == '}') return false;
    if (opened && (line[0] == ' ' || own.starts_with("- "))) return true;
    opened = own.back() == ':' && own[0] != '"';
  }
  return false;
}

bool is_toml(const std::string& first, const Names& names) {
  return !names.empty() && first.size() > 2 && first[0] == '[' && first.back() == ']' &&
         (std::isalpha(static_cast<unsigned char>(first[1])) || first[1] == '[') &&
         first.find(',') == std::string::npos;
}

}  // namespace

std::string foreign_object(const Value& config) {
  for (const char* ours : {"model", "dataset", "train_steps", "extends"})
    if (const Value* const own = config.find(ours); own && !own->is_string()) return {};
  if (!config.is_object() || config.find("extends")) return {};
  Names top, names;
  add_names(config, 0, top), add_names(config, 1, names);
  return told_by_names(top, names);
}

std::string foreign_text(const std::string& text) {
  const std::string first = first_line_of(text);
  if (first.starts_with("#!") || first.starts_with("import ") || first.starts_with("from "))
    return told_by_form("script");
  Names names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) add_line(line, names);
  for (const char* ours : {"train_steps", "extends"})
    if (names.contains(ours)) return {};
  if (const std::string known = told_by_names(names, names); !known.empty()) return known;
  if (is_toml(first, names)) return told_by_form("toml");
  if (first.starts_with("--")) return told_by_form("arguments");
  return is_yaml(text) ? told_by_form("yaml") : "";
}

}  // namespace drivetrain
