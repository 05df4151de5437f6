#include <drivetrain/error.h>

#include "definition.h"

namespace drivetrain::bpe {
namespace {

bool is_set(const Value* value) {
  return value && !value->is_null() && *value != Value("") && *value != Value(false) && *value != Value(0) &&
         *value != Value(0.0);
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
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
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
  AddedToken token = read_flags(entry, where);
  token.id = token_id(wanted(entry, "id", where), where);
  return token;
}

// What BERT and RoBERTa put in front: "cls": ["<s>", 0].
std::string read_cls(const Value& section, const std::string& where) {
  const Value& cls = wanted(section, "cls", where);
  if (!cls.is_array() || cls.items().size() != 2 || !cls.items()[0].is_string())
    throw fail(ErrorCode::config, where, ": \"cls\" is ", cls.to_json(), ", wanted a token and its id");
  return cls.items()[0].as_string();
}

// What is put in front of a single text. ByteLevel changes only offsets, which nobody asks for.
void read_post_processor(const Value& section, Definition& definition, const std::string& where) {
  const std::string type = type_of(section, where);
  if (type == "Sequence") {
    for (const Value& one : wanted(section, "processors", where).items()) read_post_processor(one, definition, where);
  } else if (type == "TemplateProcessing") {
    for (const Value& part : wanted(section, "single", where).items()) {
      const Value* special = part.find("SpecialToken");
      if (!special) break;
      definition.first.push_back(wanted(*special, "id", where).as_string());
    }
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    definition.first.push_back(read_cls(section, where));
  } else if (type != "ByteLevel") {
    throw fail(ErrorCode::config, where, ": the post-processor ", type, " is not known in this version; known are ",
               "ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing and Sequence");
  }
}

void read_byte_level(const Value& file, Definition& definition, const std::string& path) {
  definition.nfc = reads_nfc(file.find("normalizer"), path + ": normalizer");
  const Value& pre_tokenizer = wanted(file, "pre_tokenizer", path);
  definition.cuts = read_pre_tokenizer(pre_tokenizer, path + ": pre_tokenizer");
  if (const Value* const type = pre_tokenizer.find("type"); type && *type == Value("ByteLevel"))
    definition.blank_in_front = definition.cuts.size() > 0 && definition.cuts[0].kind == Cut::Kind::space_in_front;
  const Value* const decoder = file.find("decoder");
  if (!decoder || decoder->is_null()) return;
  if (const std::string type = type_of(*decoder, path + ": decoder"); type != "ByteLevel")
    throw fail(ErrorCode::config, path, ": the decoder ", type, " is not known in this version; known is ByteLevel");
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
  const Value& model = wanted(file, "model", path);
  read_model(model, definition, path + ": model");
  if (is_set(model.find("byte_fallback")))
    definition.blanks = read_blanks(file.find("normalizer"), file.find("pre_tokenizer"), file.find("decoder"), path);
  else
    read_byte_level(file, definition, path);
  if (const Value* added = file.find("added_tokens"); added && !added->is_null())
    for (const Value& entry : added->items()) definition.added.push_back(read_added(entry, path + ": added_tokens"));
  if (const Value* last = file.find("post_processor"); last && !last->is_null())
    read_post_processor(*last, definition, path + ": post_processor");
  return definition;
}

}  // namespace drivetrain::bpe
