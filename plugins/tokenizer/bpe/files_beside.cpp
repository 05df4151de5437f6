#include "files_beside.h"

#include <algorithm>
#include <filesystem>

#include <drivetrain/error.h>

#include "definition.h"

namespace drivetrain::bpe {
namespace {

// "<s>", {"content": "<s>", ...}, a list of these, or null. "extra_special_tokens" may also be an object of these.
void add_named(const std::string& key, const Value& value, const std::string& path, FilesBeside& beside) {
  if (value.is_null()) return;
  if (value.is_array()) {
    for (const Value& one : value.items()) add_named(key, one, path, beside);
    return;
  }
  if (key == "extra_special_tokens" && value.is_object()) {
    for (const Value::Member& one : value.members()) add_named(key, one.value, path, beside);
    return;
  }
  if (!value.is_string() && !value.is_object())
    throw fail(ErrorCode::config, path, ": ", key, " is ", value.to_json(), ", wanted a token");
  NamedToken named{.key = key, .file = path, .has_flags = value.is_object()};
  if (value.is_object())
    named.token = read_flags(value, path + ": " + key);
  else
    named.token.content = value.as_string();
  if (named.token.content.empty()) throw fail(ErrorCode::config, path, ": ", key, " is empty");
  named.token.special = true;
  beside.named.push_back(std::move(named));
}

// True if the file said something new.
bool add_file(const Value& file, const std::string& path, std::span<const char* const> keys, FilesBeside& beside) {
  bool news = false;
  for (const std::string key : keys) {
    const Value* value = file.find(key);
    if (!value || std::find(beside.keys_said.begin(), beside.keys_said.end(), key) != beside.keys_said.end()) continue;
    add_named(key, *value, path, beside);
    beside.keys_said.push_back(key);
    news = news || !value->is_null();
  }
  return news;
}

}  // namespace

const NamedToken* FilesBeside::find(std::string_view key) const {
  const auto found = std::find_if(named.begin(), named.end(), [&](const NamedToken& one) { return one.key == key; });
  return found == named.end() ? nullptr : &*found;
}

FilesBeside read_files_beside(const std::string& folder, std::span<const char* const> keys) {
  FilesBeside beside;
  beside.folder = folder;
  std::error_code unknown;
  beside.config_path = folder + "/tokenizer_config.json";
  if (std::filesystem::is_regular_file(beside.config_path, unknown)) {
    beside.config = read_json_file(beside.config_path);
    add_file(beside.config, beside.config_path, keys, beside);
    beside.files.push_back(beside.config_path);
  }
  // Listed only where it says something: the files are the tokenizer's identity, and most folders have it twice.
  const std::string map = folder + "/special_tokens_map.json";
  if (std::filesystem::is_regular_file(map, unknown) &&
      (add_file(read_json_file(map), map, keys, beside) || beside.files.empty()))
    beside.files.push_back(map);
  return beside;
}

}  // namespace drivetrain::bpe
