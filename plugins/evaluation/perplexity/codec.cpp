#include "codec.h"

#include <drivetrain/error.h>

namespace drivetrain::perplexity {

bool is_byte_vocabulary(const ModelFacts& model) { return model.vocab_size >= 256 && model.vocab_size <= 512; }

Codec::Codec(const ModelFacts& model) {
  if (is_byte_vocabulary(model)) return;
  throw fail(ErrorCode::config,
             "evaluation/perplexity: without a tokenizer the tokens of a text are its bytes, and the ",
             "model has a vocabulary of ", model.vocab_size, " tokens\n   use a dataset of its tokens as \"source\"");
}

std::vector<int32_t> Codec::encode(const std::string& text) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

}  // namespace drivetrain::perplexity
