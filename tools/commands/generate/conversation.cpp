#include "generate/conversation.h"

#include <filesystem>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/chat/chat_template.h>
#include <drivetrain/toolkit/chat/chat_template_files.h>

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

// The folders in which a tokenizer's files may lie. One that is named may be a file, or a plugin without files.
std::vector<std::string> places(const std::string& folder, const std::string& tokenizer,
                                const std::vector<std::string>& tokenizer_files) {
  std::error_code unknown;
  if (!tokenizer.empty() && fs::exists(tokenizer, unknown))
    return {fs::is_directory(tokenizer, unknown) ? tokenizer : fs::absolute(tokenizer).parent_path().string()};
  std::vector<std::string> all = {folder, (fs::path(folder) / "final").string()};
  for (const std::string& file : tokenizer_files) all.push_back(fs::path(file).parent_path().string());
  return all;
}

}  // namespace

struct ConversationWriter::Templates {
  FolderTemplates folder;
  std::string name;

  // The template for conversations with tools may be another one.
  ChatTemplate chosen(bool with_tools) const {
    try {
      const NamedTemplate& found = name.empty() ? folder.choose(with_tools) : folder.named(name);
      return {found.text, found.where};
    } catch (const Error& e) {
      throw Error(e.code(), concat(name.empty() ? "--chat: " : "--template: ", e.what(),
                                   name.empty() ? "\n   --template NAME takes one of them" : ""));
    }
  }
};

ConversationWriter::ConversationWriter(const std::string& folder, const std::string& tokenizer,
                                       const std::vector<std::string>& tokenizer_files, bool chat,
                                       const std::string& name) {
  if (!chat) return;
  const std::vector<std::string> all = places(folder, tokenizer, tokenizer_files);
  for (const std::string& place : all) {
    FolderTemplates found = read_folder_templates(place);
    if (found.empty()) continue;
    templates_ = std::make_shared<const Templates>(Templates{std::move(found), name});
    return;
  }
  throw fail(ErrorCode::config, "--chat: ", all.front(), " holds no chat template: neither chat_template.jinja nor ",
             "\"chat_template\" in tokenizer_config.json\n   give the folder of a tokenizer that has one: --tokenizer ",
             "FOLDER, or leave out --chat");
}

std::string ConversationWriter::write(const Prompt& prompt) const {
  const ChatTemplate chosen = templates_->chosen(!prompt.tools.is_null());
  ChatOptions options;
  options.add_generation_prompt = true;
  options.special_tokens = templates_->folder.special_tokens;
  try {
    return render_chat(chosen, prompt.messages, prompt.tools, options).text;
  } catch (const Error& e) {
    throw Error(e.code(), prompt.where + ": " + e.what());
  }
}

}  // namespace drivetrain
