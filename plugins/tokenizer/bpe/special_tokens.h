// The facts about special tokens.
#pragma once

#include <drivetrain/tokenizer.h>

#include "encoder.h"

namespace drivetrain::bpe {

// Sets bos, eos, pad, eod and, where "add_bos_token" is there, prefix of `facts`, and adds the files to facts.files.
// Where no file says which token ends a document, it is the one that GPT-2 names so, if there is such a token.
void set_special_tokens(const FilesBeside& beside, const Encoder& encoder, TokenizerFacts& facts);

}  // namespace drivetrain::bpe
