// What the files beside a tokenizer say about its special tokens.
#pragma once

#include <string>

#include <drivetrain/tokenizer.h>

#include "encoder.h"

namespace drivetrain::bpe {

// Sets bos, eos, pad, eod and, where "add_bos_token" is there, prefix of `facts` by tokenizer_config.json or
// special_tokens_map.json of `folder`, and adds the file to facts.files. Without either: the end of documents as GPT-2
// names it, if there is such a token.
void read_special_tokens(const std::string& folder, const Encoder& encoder, TokenizerFacts& facts);

}  // namespace drivetrain::bpe
