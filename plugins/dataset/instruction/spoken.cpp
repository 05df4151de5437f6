#include "spoken.h"

#include <algorithm>
#include <filesystem>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/read_file.h>
#include <drivetrain/toolkit/text/json_line.h>

#include "line_keys.h"

namespace drivetrain::instruction {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostBytes = 64 << 20;
constexpr size_t kMostNames = 12;

const KeyRow* rule_of(const std::string& unread, const FieldNames& names) {
  const std::string of_messages = names.messages + "[].";
  if (!unread.starts_with(of_messages)) return find_key(line_keys(), kLine, unread);
  return find_key(line_keys(), kMessage, unread.substr(of_messages.size()));
}

// The file of the folder that has a chat template, or nothing.
std::string template_in(const fs::path& folder) {
  std::error_code unknown;
  if (fs::exists(folder / "chat_template.jinja", unknown)) return folder / "chat_template.jinja";
  const std::string path = folder / "tokenizer_config.json";
  try {
    const auto text = read_file(path, kMostBytes, ErrorCode::io);
    if (!text) return {};
    const Value config = parse_json_line(*text);
    const Value* const chat = config.find("chat_template");
    return chat && !chat->is_null() ? path : "";
  } catch (const Error&) {
    return {};  // whoever needs the file says what is wrong with it
  }
}

}  // namespace

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
  std::vector<fs::path> folders;
  for (const std::string& file : tokenizer.files) {
    const fs::path folder = fs::path(file).parent_path();
    if (std::find(folders.begin(), folders.end(), folder) != folders.end()) continue;
    folders.push_back(folder);
    if (const std::string path = template_in(folder); !path.empty())
      log.info(concat("dataset/instruction: the tokenizer's own chat_template, ", path,
                      ", is not used: it is Jinja. The texts around messages are those of the option template"));
  }
}

}  // namespace drivetrain::instruction
