#include <drivetrain/toolkit/chat/chat_template_files.h>

#include <algorithm>
#include <filesystem>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/read_file.h>
#include <drivetrain/toolkit/text/json_line.h>
#include <drivetrain/value.h>

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostTemplateBytes = 64 << 20;
constexpr const char* kDefaultTemplate = "default";

std::string names_of(const std::vector<NamedTemplate>& templates) {
  std::string names;
  for (const NamedTemplate& one : templates) names += concat(names.empty() ? "\"" : ", \"", one.name, "\"");
  return names;
}

// The object in a file, or null if there is no such file.
Value json_object_of(const fs::path& path) {
  const auto text = read_file(path.string(), kMostTemplateBytes, ErrorCode::config);
  if (!text) return {};
  try {
    Value value = parse_json_line(*text);
    if (!value.is_object()) throw fail(ErrorCode::config, "it holds no object");
    return value;
  } catch (const Error& e) {
    throw fail(ErrorCode::config, path.string(), ": ", e.what());
  }
}

// "chat_template" of a file: a text, a list of {"name", "template"}, or an object of texts by name.
void add_member(const Value& file, const fs::path& path, std::vector<NamedTemplate>& to) {
  const Value* const found = file.find("chat_template");
  if (!found || found->is_null()) return;
  const auto add = [&](const std::string& name, const Value* text) {
    if (!text || !text->is_string())
      throw fail(ErrorCode::config, path.string(), ": the chat_template \"", name, "\" is no text");
    to.push_back({name, text->as_string(), concat(path.string(), ": chat_template \"", name, "\"")});
  };
  if (found->is_string()) return void(to.push_back({kDefaultTemplate, found->as_string(), path.string()}));
  if (found->is_object()) {
    for (const Value::Member& member : found->members()) add(member.key, &member.value);
  } else if (found->is_array()) {
    for (const Value& item : found->items()) {
      const Value* const name = item.find("name");
      if (!name || !name->is_string())
        throw fail(ErrorCode::config, path.string(),
                   ": \"chat_template\" is a list; wanted objects with \"name\" and \"template\" in it");
      add(name->as_string(), item.find("template"));
    }
  } else {
    throw fail(ErrorCode::config, path.string(), ": \"chat_template\" is ", found->type_name(),
               "; wanted a text or a list of named ones");
  }
}

// "bos_token": a text or {"content": ...}.
void add_special_tokens(const Value& file, std::map<std::string, std::string>& to) {
  if (!file.is_object()) return;
  for (const Value::Member& member : file.members()) {
    if (!member.key.ends_with("_token") || member.key.starts_with("add_")) continue;
    const Value* const content = member.value.is_object() ? member.value.find("content") : &member.value;
    if (content && content->is_string()) to.emplace(member.key, content->as_string());
  }
}

}  // namespace

const NamedTemplate& FolderTemplates::named(const std::string& name) const {
  // A later one of the same name counts, as in transformers.
  const auto found =
      std::find_if(templates.rbegin(), templates.rend(), [&](const auto& one) { return one.name == name; });
  if (found != templates.rend()) return *found;
  throw fail(ErrorCode::config, "there is no chat template \"", name, "\"; there are ",
             templates.empty() ? "none" : names_of(templates));
}

const NamedTemplate& FolderTemplates::choose(bool with_tools) const {
  const auto has = [&](const char* name) {
    return std::any_of(templates.begin(), templates.end(), [&](const NamedTemplate& one) { return one.name == name; });
  };
  if (with_tools && has("tool_use")) return named("tool_use");
  if (has(kDefaultTemplate)) return named(kDefaultTemplate);
  throw fail(ErrorCode::config, templates.empty() ? "there is no chat template" : "no chat template is \"default\"",
             templates.empty() ? "" : concat("; there are ", names_of(templates), ". Name one of them"));
}

FolderTemplates read_folder_templates(const std::string& folder) {
  FolderTemplates found;
  const fs::path place(folder);
  const Value config = json_object_of(place / "tokenizer_config.json");
  std::error_code unknown;
  if (fs::exists(place / "chat_template.jinja", unknown))
    found.templates.push_back(read_template_file((place / "chat_template.jinja").string()));
  const fs::path more = place / "additional_chat_templates";
  for (const std::string& name : names_in(more.string(), InFolder::files)) {
    if (fs::path(name).extension() != ".jinja") continue;
    found.templates.push_back(read_template_file((more / name).string()));
    found.templates.back().name = fs::path(name).stem().string();
  }
  if (found.empty())
    add_member(json_object_of(place / "chat_template.json"), place / "chat_template.json", found.templates);
  if (found.empty()) add_member(config, place / "tokenizer_config.json", found.templates);
  add_special_tokens(config, found.special_tokens);
  add_special_tokens(json_object_of(place / "special_tokens_map.json"), found.special_tokens);
  return found;
}

NamedTemplate read_template_file(const std::string& path) {
  const auto text = read_file(path, kMostTemplateBytes, ErrorCode::config);
  if (!text) throw fail(ErrorCode::config, path, " does not exist; wanted a chat template in Jinja");
  return {kDefaultTemplate, *text, path};
}

}  // namespace drivetrain
