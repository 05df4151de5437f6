// What tokenizer_config.json and added_tokens.json say of the tokens of a tokenizer.json, as transformers reads them:
// tokens of `added_tokens_decoder` with its flags, and special tokens that have a name and are found in texts by it.
#include <algorithm>
#include <charconv>
#include <filesystem>

#include <drivetrain/error.h>

#include "definition.h"

namespace drivetrain::bpe {
namespace {

class TokensBeside {
 public:
  explicit TokensBeside(Definition& into) : into_(into) {
    for (const auto& [token, id] : into.tokens) vocabulary_.emplace(token, id);
  }

  // A token that a file gives this id. `flags`: those of `token` count, where tokenizer.json has the token, too.
  void add_listed(const AddedToken& token, bool flags, const std::string& where) {
    AddedToken* const known = find(token.content);
    const auto in_vocabulary = vocabulary_.find(token.content);
    const int32_t id = known ? known->id : in_vocabulary != vocabulary_.end() ? in_vocabulary->second : next_id();
    if (id != token.id)
      throw fail(ErrorCode::config, where, ": \"", token.content, "\" has the id ", token.id, ", and ",
                 known || in_vocabulary != vocabulary_.end()
                     ? concat("tokenizer.json beside it gives it ", id)
                     : concat("the next one that is free behind tokenizer.json is ", id, ", which transformers gives"));
    if (!known)
      into_.added.push_back(token);
    else if (flags)
      *known = token;
  }

  void add_named(const NamedToken& named) {
    if (find(named.token.content)) return;
    const auto found = vocabulary_.find(named.token.content);
    if (found == vocabulary_.end())
      throw fail(ErrorCode::config, named.file, ": ", named.key, " is \"", named.token.content,
                 "\", which the tokenizer does not have; name a token of tokenizer.json, or take the key out");
    into_.added.push_back(named.token);
    into_.added.back().id = found->second;
  }

 private:
  AddedToken* find(const std::string& content) {
    const auto same = [&](const AddedToken& token) { return token.content == content; };
    const auto found = std::find_if(into_.added.begin(), into_.added.end(), same);
    return found == into_.added.end() ? nullptr : &*found;
  }
  // As the library counts on: behind the vocabulary, and behind all that was added there.
  int32_t next_id() const {
    auto next = static_cast<int32_t>(into_.tokens.size());
    for (const AddedToken& token : into_.added) next = std::max(next, token.id + 1);
    return next;
  }

  Definition& into_;
  TokenIds vocabulary_;
};

std::vector<AddedToken> tokens_of_decoder(const Value& decoder, const std::string& where) {
  std::vector<AddedToken> tokens;
  for (const Value::Member& member : decoder.members()) {
    AddedToken token = read_flags(member.value, where);
    const char* const end = member.key.data() + member.key.size();
    if (const auto [stop, error] = std::from_chars(member.key.data(), end, token.id);
        error != std::errc() || stop != end || token.id < 0)
      throw fail(ErrorCode::config, where, ": \"", member.key, "\" is no id of a token");
    tokens.push_back(std::move(token));
  }
  std::sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return tokens;
}

// {"[PAD]": 32000}. Where tokenizer_config.json has a list of its own, transformers does not look at it.
std::vector<AddedToken> tokens_of_file(const std::string& path, const FilesBeside& beside) {
  std::vector<AddedToken> tokens;
  const Value list = read_json_file(path);
  for (const Value::Member& member : list.members()) {
    const bool special = std::any_of(beside.named.begin(), beside.named.end(),
                                     [&](const NamedToken& named) { return named.token.content == member.key; });
    tokens.push_back(
        {.content = member.key, .id = token_id(member.value, path), .special = special, .normalized = !special});
  }
  std::sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return tokens;
}

// What would change every text, and versions of transformers read in two ways, or we do not do.
void refuse_settings(const FilesBeside& beside, const Definition& definition) {
  const auto is = [&](const char* key, bool value) {
    const Value* const found = beside.config.find(key);
    return found && *found == Value(value);
  };
  if (is("split_special_tokens", true))
    throw fail(ErrorCode::config, beside.config_path, ": \"split_special_tokens\" is true, so that special tokens in ",
               "texts are cut into others; this version does not know it. Set it to false");
  if (definition.blank_in_front && is("add_prefix_space", !*definition.blank_in_front))
    throw fail(ErrorCode::config, beside.config_path, ": \"add_prefix_space\" is ",
               *definition.blank_in_front ? "false" : "true", ", and the pre_tokenizer of tokenizer.json says ",
               *definition.blank_in_front ? "true" : "false",
               "; transformers 4 goes by the first, transformers 5 by the second. Make them equal");
}

}  // namespace

void read_tokens_beside(FilesBeside& beside, Definition& definition) {
  refuse_settings(beside, definition);
  const Value* const decoder = beside.config.find("added_tokens_decoder");
  const std::string list = beside.folder + "/added_tokens.json";
  std::error_code unknown;
  TokensBeside tokens(definition);
  if (decoder && !decoder->is_null()) {
    const std::string where = beside.config_path + ": added_tokens_decoder";
    for (const AddedToken& token : tokens_of_decoder(*decoder, where)) tokens.add_listed(token, true, where);
  } else if (std::filesystem::is_regular_file(list, unknown)) {
    for (const AddedToken& token : tokens_of_file(list, beside)) tokens.add_listed(token, false, list);
    beside.files.push_back(list);
  }
  for (const NamedToken& named : beside.named) tokens.add_named(named);
}

}  // namespace drivetrain::bpe
