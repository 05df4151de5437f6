// The chat templates of a folder, in all the places in which transformers looks for them.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace drivetrain {

struct NamedTemplate {
  std::string name;  // "default", "tool_use"
  std::string text;
  std::string where;  // file, and the name where it has several
};

struct FolderTemplates {
  std::vector<NamedTemplate> templates;               // none: the folder has none
  std::map<std::string, std::string> special_tokens;  // "bos_token": "<s>", as tokenizer_config.json says

  bool empty() const { return templates.empty(); }
  // As transformers chooses: "tool_use" for conversations with tools where there is one, else "default". Error(config)
  // that names those that there are.
  const NamedTemplate& choose(bool with_tools) const;
  const NamedTemplate& named(const std::string& name) const;  // Error(config) if there is none
};

// Reads chat_template.jinja and additional_chat_templates/*.jinja, else chat_template.json, else "chat_template" of
// tokenizer_config.json (one text, or a list of named ones); special tokens of tokenizer_config.json and
// special_tokens_map.json. Files that are not there are none. Error(config) for a file that is damaged. Thread: any.
FolderTemplates read_folder_templates(const std::string& folder);
// One file of Jinja as the template "default". Error(config) if it is not there.
NamedTemplate read_template_file(const std::string& path);

}  // namespace drivetrain
