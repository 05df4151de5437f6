#include "spoken.h"

#include <algorithm>
#include <filesystem>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/chat/chat_template_files.h>
#include <drivetrain/toolkit/text.h>

#include "line_keys.h"

namespace drivetrain::instruction {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNames = 12;

const KeyRow* rule_of(const std::string& unread, const FieldNames& names) {
  const std::string of_messages = names.messages + "[].";
  if (!unread.starts_with(of_messages)) return find_key(line_keys(), kLine, unread);
  return find_key(line_keys(), kMessage, unread.substr(of_messages.size()));
}

}  // namespace

std::vector<std::string> folders_of(const TokenizerFacts& tokenizer) {
  std::vector<std::string> folders;
  for (const std::string& file : tokenizer.files) {
    const std::string folder = fs::path(file).parent_path().string();
    if (std::find(folders.begin(), folders.end(), folder) == folders.end()) folders.push_back(folder);
  }
  return folders;
}

void say_unread_keys(const Figures& figures, const FieldNames& names, Log& log) {
  std::string others;
  size_t count = 0;
  for (const auto& [key, unread] : figures.unread) {
    const KeyRow* const rule = rule_of(key, names);
    if (rule && rule->use == KeyUse::left_out) {
      log.warning(concat("dataset/instruction: \"", key, "\" is not read: ", rule->why, ". ", unread.lines,
                         " lines have it, the first is ", unread.first, ". What is learned is the rest of the line"));
      continue;
    }
    if (++count <= kMostNames) others += concat(others.empty() ? "\"" : ", \"", key, "\" (", unread.lines, " lines)");
  }
  if (count > kMostNames) others += concat(" and ", count - kMostNames, " more");
  if (count > 0) log.info(concat("dataset/instruction: keys that are not read: ", others));
}

void say_begin(const TokenizerFacts& tokenizer, bool from_template, Log& log) {
  if (tokenizer.prefix.empty()) return;
  std::string ids;
  for (const int32_t id : tokenizer.prefix) ids += concat(ids.empty() ? "" : ", ", id);
  log.info(from_template ? concat("dataset/instruction: the tokenizer's files put token ", ids,
                                  " in front of a text; the template's bos stands there instead")
                         : concat("dataset/instruction: every conversation begins with token ", ids,
                                  ", as the tokenizer's files say; \"bos\": \"\" in the template leaves it out"));
}

void say_unknown_marks(const UnknownMarks& marks, const std::string& tokenizer, Log& log) {
  if (marks.empty()) return;
  std::string list;
  for (const auto& [mark, pieces] : marks) list += concat(list.empty() ? "" : ", ", mark, " (", pieces, " tokens)");
  log.warning(concat("dataset/instruction: the template has marks that are no tokens of tokenizer/", tokenizer,
                     " and are encoded as text: ", list, ". If the model knows others, write these into the template"));
}

void say_other_template(const TokenizerFacts& tokenizer, Log& log) {
  for (const std::string& folder : folders_of(tokenizer)) {
    try {
      const FolderTemplates found = read_folder_templates(folder);
      if (!found.empty())
        log.info(concat("dataset/instruction: the tokenizer's own chat_template, ", found.templates.front().where,
                        ", is not used; \"template\": \"tokenizer\" takes it"));
    } catch (const Error&) {
      continue;  // whoever needs the file says what is wrong with it
    }
  }
}

void say_template(const JinjaEncoder& encoder, const std::string& tokenizer, Log& log) {
  log.info(concat("dataset/instruction: the chat template is ", encoder.where(), "; what is learned is ",
                  encoder.marks_answers()
                      ? "what it marks by {% generation %}"
                      : "what a message adds to the conversation before it, since it has no {% generation %} marks"));
  if (!encoder.unnamed_tokens().empty())
    log.warning(concat("dataset/instruction: the chat template writes ", join(encoder.unnamed_tokens(), ", "),
                       ", which the tokenizer's files do not name: nothing stands there. Name it in ",
                       "tokenizer_config.json, or in template_options"));
  say_unknown_marks(encoder.unknown_marks(), tokenizer, log);
}

}  // namespace drivetrain::instruction
