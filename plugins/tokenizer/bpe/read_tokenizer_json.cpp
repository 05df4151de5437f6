#include <fstream>
#include <limits>

#include <drivetrain/error.h>

#include "definition.h"

namespace drivetrain::bpe {
namespace {

int32_t token_id(const Value& value, const std::string& where) {
  const int64_t id = value.as_int();
  if (id < 0 || id >= std::numeric_limits<int32_t>::max())
    throw fail(ErrorCode::config, where, ": ", id, " is no id of a token");
  return static_cast<int32_t>(id);
}

void read_tokens(const Value& vocab, Definition& definition, const std::string& where) {
  for (const Value::Member& token : vocab.members())
    definition.tokens.emplace_back(token.key, token_id(token.value, where));
}

bool is_set(const Value* value) {
  return value && !value->is_null() && *value != Value("") && *value != Value(false) && *value != Value(0) &&
         *value != Value(0.0);
}

const Value& wanted(const Value& section, const char* key, const std::string& where) {
  const Value* value = section.find(key);
  if (!value) throw fail(ErrorCode::config, where, ": has no \"", key, "\"");
  return *value;
}

void read_model(const Value& model, Definition& definition, const std::string& where) {
  const Value* type = model.find("type");
  if (type && *type != Value("BPE"))
    throw fail(ErrorCode::config, where, ": the model ", type->as_string(),
               " is not known in this version; known is BPE");
  refuse_other_keys(model,
                    {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                     "byte_fallback", "ignore_merges", "vocab", "merges"},
                    where);
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"})
    if (is_set(model.find(key)))
      throw fail(ErrorCode::config, where, ": \"", key, "\" is ", model.find(key)->to_json(),
                 ", which this version does not know");
  definition.whole_first = is_set(model.find("ignore_merges"));
  read_tokens(wanted(model, "vocab", where), definition, where + ".vocab");
  MergeReader merges(definition);
  const std::string place = where + ".merges";
  for (const Value& merge : wanted(model, "merges", where).items()) {
    if (merge.is_string()) {
      merges.add(merge.as_string(), place);
      continue;
    }
    if (merge.items().size() != 2) throw fail(ErrorCode::config, place, ": a merge has two tokens");
    merges.add(merge.items()[0].as_string(), merge.items()[1].as_string(), place);
  }
}

AddedToken read_added(const Value& entry, const std::string& where) {
  refuse_other_keys(entry, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}, where);
  AddedToken token;
  token.content = wanted(entry, "content", where).as_string();
  token.id = token_id(wanted(entry, "id", where), where);
  const auto read = [&](const char* key, bool& flag) {
    if (const Value* value = entry.find(key)) flag = value->as_bool();
  };
  read("special", token.special), read("single_word", token.single_word), read("lstrip", token.lstrip);
  read("rstrip", token.rstrip), read("normalized", token.normalized);
  if (token.content.empty()) throw fail(ErrorCode::config, where, ": a token without content");
  return token;
}

// What a template puts in front of a single text. Other post-processors change only offsets, which nobody asks for.
void read_template(const Value& section, Definition& definition, const std::string& where) {
  const std::string type = type_of(section, where);
  if (type == "Sequence") {
    for (const Value& one : wanted(section, "processors", where).items()) read_template(one, definition, where);
  } else if (type == "TemplateProcessing") {
    for (const Value& part : wanted(section, "single", where).items()) {
      const Value* special = part.find("SpecialToken");
      if (!special) break;
      definition.first.push_back(wanted(*special, "id", where).as_string());
    }
  }
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw fail(ErrorCode::io, path, ": cannot be read");
  return text;
}

}  // namespace

Definition read_tokenizer_json(const std::string& path) {
  const Value file = read_json_file(path);
  if (!file.is_object()) throw fail(ErrorCode::config, path, ": is no tokenizer of Hugging Face's tokenizers");
  refuse_other_keys(file,
                    {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                     "post_processor", "decoder", "model"},
                    path);
  Definition definition;
  definition.files = {path};
  read_model(wanted(file, "model", path), definition, path + ": model");
  definition.nfc = reads_nfc(file.find("normalizer"), path + ": normalizer");
  definition.cuts = read_pre_tokenizer(wanted(file, "pre_tokenizer", path), path + ": pre_tokenizer");
  if (const Value* added = file.find("added_tokens"); added && !added->is_null())
    for (const Value& entry : added->items()) definition.added.push_back(read_added(entry, path + ": added_tokens"));
  if (const Value* last = file.find("post_processor"); last && !last->is_null())
    read_template(*last, definition, path + ": post_processor");
  if (const Value* decoder = file.find("decoder"); decoder && !decoder->is_null())
    if (const std::string type = type_of(*decoder, path + ": decoder"); type != "ByteLevel")
      throw fail(ErrorCode::config, path, ": the decoder ", type, " is not known in this version; known is ByteLevel");
  return definition;
}

Definition read_gpt2_files(const std::string& vocab, const std::string& merges) {
  Definition definition;
  definition.files = {vocab, merges};
  read_tokens(read_json_file(vocab), definition, vocab);
  MergeReader reader(definition);
  const std::string text = read_text(merges);
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    begin = end + 1, ++number;
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    reader.add(line, concat(merges, ":", number));
  }
  definition.cuts.push_back({});
  definition.cuts.back().patterns.emplace_back(kGpt2Pattern, vocab);
  // As the tokenizer of GPT-2 in transformers: the one special token is found in texts.
  for (const auto& [token, id] : definition.tokens)
    if (token == "<|endoftext|>") definition.added.push_back({.content = token, .id = id, .special = true});
  return definition;
}

}  // namespace drivetrain::bpe
