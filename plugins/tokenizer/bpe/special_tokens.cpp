#include "special_tokens.h"

#include <filesystem>

#include <drivetrain/error.h>

namespace drivetrain::bpe {
namespace {

// "bos_token": "<s>", or {"content": "<s>", ...}, or null.
std::optional<int32_t> read_token(const Value& file, const char* key, const Encoder& encoder, const std::string& path) {
  const Value* value = file.find(key);
  if (value && value->is_object()) value = value->find("content");
  if (!value || value->is_null()) return std::nullopt;
  const auto id = encoder.id_of(value->as_string());
  if (!id)
    throw fail(ErrorCode::config, path, ": ", key, " is \"", value->as_string(),
               "\", which the tokenizer does not have");
  return id;
}

}  // namespace

void read_special_tokens(const std::string& folder, const Encoder& encoder, TokenizerFacts& facts) {
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string path = folder + "/" + name;
    std::error_code unknown;
    if (!std::filesystem::is_regular_file(path, unknown)) continue;
    const Value file = read_json_file(path);
    facts.files.push_back(path);
    facts.bos = read_token(file, "bos_token", encoder, path);
    facts.eos = read_token(file, "eos_token", encoder, path);
    facts.pad = read_token(file, "pad_token", encoder, path);
    if (const Value* add = file.find("add_bos_token"); add && add->is_bool()) {
      facts.prefix.clear();
      if (add->as_bool() && facts.bos) facts.prefix = {*facts.bos};
    }
    break;
  }
  facts.eod = encoder.id_of("<|endoftext|>");
  if (!facts.eod) facts.eod = facts.eos;
}

}  // namespace drivetrain::bpe
