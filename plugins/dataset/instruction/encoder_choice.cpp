#include "encoder_choice.h"

#include <filesystem>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "jinja_encoder.h"
#include "spoken.h"

namespace drivetrain::instruction {
namespace {

bool is_tokenizers(const TemplateChoice& choice) {
  return choice.chat_template.is_string() && choice.chat_template.as_string() == "tokenizer";
}

// Of the file or folder that is named, or of the tokenizer; special tokens are the tokenizer's where it has files.
FolderTemplates templates_of(const TokenizerFacts& tokenizer, const std::string& type, const TemplateChoice& choice) {
  FolderTemplates own, found;
  const std::vector<std::string> folders = folders_of(tokenizer);
  for (const std::string& folder : folders)
    if (own.empty()) own = read_folder_templates(folder);
  if (choice.file.empty()) {
    if (own.empty())
      throw fail(ErrorCode::config, "dataset/instruction: template is \"tokenizer\", and tokenizer/", type,
                 " has no chat template: there is none in ",
                 folders.empty() ? std::string("a folder, since it has no files") : join(folders, ", "),
                 "\n   name one in template_file, or leave template out for ChatML");
    return own;
  }
  if (std::filesystem::is_directory(choice.file))
    found = read_folder_templates(choice.file);
  else
    found.templates = {read_template_file(choice.file)};
  if (found.empty())
    throw fail(ErrorCode::config, "dataset/instruction: there is no chat template in template_file, ", choice.file);
  if (!own.special_tokens.empty()) found.special_tokens = own.special_tokens;
  return found;
}

}  // namespace

bool is_jinja(const TemplateChoice& choice) {
  if (!choice.file.empty() && !choice.chat_template.is_null())
    throw fail(ErrorCode::config, "template and template_file exclude each other");
  if (!choice.variables.is_null() && !choice.variables.is_object())
    throw fail(ErrorCode::config, "template_options is ", choice.variables.type_name(),
               "; wanted an object of variables");
  const bool jinja = !choice.file.empty() || is_tokenizers(choice);
  if (!jinja && (!choice.name.empty() || !choice.variables.is_null()))
    throw fail(ErrorCode::config, "template_name and template_options are of a template in Jinja: set template to ",
               "\"tokenizer\", or template_file");
  return jinja;
}

std::unique_ptr<const ConversationEncoder> make_encoder(const Tokenizer& tokenizer, const std::string& type,
                                                        const TemplateChoice& choice, Log& log) {
  const TokenizerFacts facts = tokenizer.facts();
  if (is_jinja(choice)) {
    auto made = std::make_unique<JinjaEncoder>(tokenizer, templates_of(facts, type, choice), choice.name,
                                               choice.learned, choice.variables);
    say_template(*made, type, log);
    return made;
  }
  const ChatTemplate chat = read_template(choice.chat_template);
  auto made = std::make_unique<Encoder>(tokenizer, chat, choice.learned);
  say_begin(facts, chat.bos.has_value(), log);
  say_unknown_marks(made->unknown_marks(), type, log);
  say_other_template(facts, log);
  return made;
}

}  // namespace drivetrain::instruction
