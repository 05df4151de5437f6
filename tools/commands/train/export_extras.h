// What a Hugging Face folder that we write holds beside its weights: the tokenizer's files, the tokens that begin and
// end texts, settings of sampling, and the type of the weights. Nothing of it is guessed. Main thread.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/model.h>

#include "internal.h"
#include "shared/open_tokenizer.h"
#include "state/weights.h"

namespace drivetrain {

struct ExportSource {
  Value config;                     // of the run, where it names a tokenizer and save_dtype; null: there is none
  std::string origin;               // folder of the initial weights; only a Hugging Face folder counts; "": none
  std::vector<int32_t> end_tokens;  // DatasetFacts
};

// Tokens and dtype of rules.config become what they are in the new folder. Warnings of what cannot be told go to `log`:
// a run that is over shall have its weights.
DRIVETRAIN_INTERNAL HfExtras export_extras(WeightRules& rules, const ExportSource& source,
                                           const TokenizerReaders& readers, Log& log);

}  // namespace drivetrain
