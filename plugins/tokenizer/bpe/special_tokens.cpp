#include "special_tokens.h"

#include <drivetrain/error.h>

namespace drivetrain::bpe {
namespace {

std::optional<int32_t> id_of_key(const FilesBeside& beside, const char* key, const Encoder& encoder) {
  const NamedToken* named = beside.find(key);
  if (!named) return std::nullopt;
  const auto id = encoder.id_of(named->token.content);
  if (!id)
    throw fail(ErrorCode::config, named->file, ": ", key, " is \"", named->token.content,
               "\", which the tokenizer does not have");
  return id;
}

}  // namespace

void set_special_tokens(const FilesBeside& beside, const Encoder& encoder, TokenizerFacts& facts) {
  facts.files.insert(facts.files.end(), beside.files.begin(), beside.files.end());
  facts.bos = id_of_key(beside, "bos_token", encoder);
  facts.eos = id_of_key(beside, "eos_token", encoder);
  facts.pad = id_of_key(beside, "pad_token", encoder);
  if (const Value* add = beside.config.find("add_bos_token"); add && add->is_bool()) {
    facts.prefix.clear();
    if (add->as_bool() && facts.bos) facts.prefix = {*facts.bos};
  }
  facts.eod = encoder.id_of("<|endoftext|>");
  // Vocabularies that were made from GPT-2's still have its token, as text among other texts.
  if (!facts.eod || (facts.eos && !encoder.is_added(*facts.eod))) facts.eod = facts.eos;
}

}  // namespace drivetrain::bpe
