// Vocabulary and merges, the files of GPT-2 and of those who took its tokenizer over: RoBERTa, BART, OPT. Such a pair
// says nothing about special tokens, so the files beside it do, and where they are silent the class of transformers.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include <drivetrain/error.h>

#include "definition.h"

namespace drivetrain::bpe {
namespace {

enum class Family { gpt2, roberta };

Family family_of(const FilesBeside& beside) {
  const Value* said = beside.config.find("tokenizer_class");
  if (!said || said->is_null()) return Family::gpt2;
  std::string name = said->as_string();
  const std::string whole = name;
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  if (name == "GPT2Tokenizer" || name == "OPTTokenizer") return Family::gpt2;
  if (name == "RobertaTokenizer" || name == "BartTokenizer") return Family::roberta;
  throw fail(ErrorCode::config, beside.config_path, ": tokenizer_class is ", whole,
             ", and of vocabulary and merges this version knows those of GPT2Tokenizer, OPTTokenizer, ",
             "RobertaTokenizer and BartTokenizer; give its tokenizer.json, which says how it cuts texts");
}

// CLIP and the first GPT write the end of a word into the token, which byte-level BPE does not do: the pattern of GPT-2
// parts letters from signs, so no merges of its make such a token.
void refuse_ends_of_words(const Definition& definition, const std::string& vocab) {
  constexpr std::string_view kEnd = "</w>";
  for (const auto& [token, id] : definition.tokens)
    if (token.size() > kEnd.size() && token.ends_with(kEnd))
      throw fail(ErrorCode::config, vocab, ": the token \"", token, "\" marks the end of a word, as CLIP's do; ",
                 "tokenizer/bpe reads byte-level vocabularies as GPT-2's only");
}

void read_merges(const std::string& path, Definition& definition) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw fail(ErrorCode::io, path, ": cannot be read");
  MergeReader reader(definition);
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    begin = end + 1, ++number;
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    reader.add(line, concat(path, ":", number));
  }
}

// Collects the tokens that are found in texts, each once.
class AddedReader {
 public:
  explicit AddedReader(Definition& into) : into_(into) {
    for (const auto& [token, id] : into.tokens) ids_.emplace(token, id);
  }

  // "added_tokens_decoder": {"50256": {"content": "<|endoftext|>", ...}, ...}
  void read_decoder(const FilesBeside& beside) {
    const Value* list = beside.config.find("added_tokens_decoder");
    if (!list || list->is_null()) return;
    const std::string where = beside.config_path + ": added_tokens_decoder";
    for (const Value::Member& member : list->members()) {
      int64_t id = -1;
      const char* const end = member.key.data() + member.key.size();
      if (const auto [stop, error] = std::from_chars(member.key.data(), end, id); error != std::errc() || stop != end)
        throw fail(ErrorCode::config, where, ": \"", member.key, "\" is no id of a token");
      AddedToken token = read_flags(member.value, where);
      token.id = token_id(Value(id), where);
      add(std::move(token));
    }
  }

  // added_tokens.json: {"<pad>": 50257, ...}
  void read_file(const std::string& path) {
    std::error_code unknown;
    if (!std::filesystem::is_regular_file(path, unknown)) return;
    const Value list = read_json_file(path);
    for (const Value::Member& member : list.members()) {
      const int32_t id = token_id(member.value, path);
      const auto [known, fresh] = ids_.emplace(member.key, id);
      if (known->second != id)
        throw fail(ErrorCode::config, path, ": \"", member.key, "\" has the id ", id, ", and ", known->second,
                   " in the files beside it");
      listed_.push_back(member.key);
    }
    into_.files.push_back(path);
  }

  void add_named(const NamedToken& named) {
    AddedToken token = named.token;
    const auto id = ids_.find(token.content);
    if (id == ids_.end())
      throw fail(ErrorCode::config, named.file, ": ", named.key, " is \"", token.content,
                 "\", which the vocabulary does not have; name its id in added_tokens.json: {\"", token.content,
                 "\": id}");
    token.id = id->second;
    add(std::move(token));
  }

  // Those of added_tokens.json that nothing else has named, and so given flags.
  void add_listed() {
    for (const std::string& content : listed_) add({.content = content, .id = ids_.find(content)->second});
  }
  bool knows(const std::string& token) const { return ids_.contains(token); }

 private:
  void add(AddedToken token) {
    const auto same = [&](const AddedToken& other) { return other.content == token.content; };
    if (std::any_of(into_.added.begin(), into_.added.end(), same)) return;
    ids_.emplace(token.content, token.id);
    into_.added.push_back(std::move(token));
  }

  Definition& into_;
  TokenIds ids_;
  std::vector<std::string> listed_;
};

// The names that the classes of transformers have where no file says otherwise. Those of GPT-2 are found in texts and
// change no facts: its one token ends documents, which needs no name.
std::vector<NamedToken> usual_names(Family family) {
  const auto name = [](const char* key, const char* content) {
    return NamedToken{.key = key, .token = {.content = content, .special = true}};
  };
  if (family == Family::gpt2)
    return {name("bos_token", "<|endoftext|>"), name("eos_token", "<|endoftext|>"), name("unk_token", "<|endoftext|>")};
  return {name("bos_token", "<s>"),    name("eos_token", "</s>"),  name("cls_token", "<s>"),
          name("sep_token", "</s>"),   name("unk_token", "<unk>"), name("pad_token", "<pad>"),
          name("mask_token", "<mask>")};
}

void read_added(Family family, FilesBeside& beside, Definition& definition) {
  AddedReader reader(definition);
  reader.read_decoder(beside);
  reader.read_file(beside.folder + "/added_tokens.json");
  for (const NamedToken& usual : usual_names(family)) {
    const bool said = std::find(beside.keys_said.begin(), beside.keys_said.end(), usual.key) != beside.keys_said.end();
    if (said || !reader.knows(usual.token.content)) continue;
    if (family == Family::gpt2)
      reader.add_named(usual);
    else
      beside.named.push_back(usual);
  }
  for (NamedToken& named : beside.named) {
    // <mask> stands for a word with the blank before it.
    if (family == Family::roberta && named.key == "mask_token" && !named.has_flags) named.token.lstrip = true;
    reader.add_named(named);
  }
  reader.add_listed();
}

}  // namespace

Definition read_gpt2_files(const std::string& vocab, const std::string& merges, FilesBeside& beside) {
  const Family family = family_of(beside);
  Definition definition;
  definition.files = {vocab, merges};
  read_tokens(read_json_file(vocab), definition, vocab);
  refuse_ends_of_words(definition, vocab);
  read_merges(merges, definition);
  const Value* blank = beside.config.find("add_prefix_space");
  if (blank && !blank->is_null() && blank->as_bool()) definition.cuts.push_back({.kind = Cut::Kind::space_in_front});
  definition.cuts.push_back({});
  definition.cuts.back().patterns.emplace_back(kGpt2Pattern, vocab);
  read_added(family, beside, definition);
  if (const NamedToken* cls = beside.find("cls_token"); cls && family == Family::roberta)
    definition.first.push_back(cls->token.content);
  return definition;
}

}  // namespace drivetrain::bpe
