// The tokenizer of `generate`: the text of a prompt to tokens, and what is sampled back to text. Main thread.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data_tools/open_tokenizer.h"
#include "internal.h"

namespace drivetrain {

// A run's configuration, of its resolved.json; null for a folder that is no run's.
Value run_config(const std::string& folder);

// The tokenizer that --tokenizer names (`named`), else the one that the run's resolved.json records, else what the
// model's folder holds; nothing if there is none of these. Error(config) if it does not fit a model of `vocab_size`
// ids.
DRIVETRAIN_INTERNAL std::optional<OpenedTokenizer> tokenizer_of(const std::string& folder, const std::string& named,
                                                                int64_t vocab_size, const TokenizerReaders& readers);

// How texts of this model begin, and which tokens end them: as the run's data say (begin_tokens, end_tokens of
// resolved.json), as generation_config.json of the model's folder says (eos_token_id), and as the tokenizer's files
// say.
struct TextEnds {
  std::vector<int32_t> begin;
  std::set<int64_t> ends;
};
DRIVETRAIN_INTERNAL TextEnds text_ends(const std::string& folder, const OpenedTokenizer& tokenizer);

// Tokens as they come, as text that can be printed at once: it ends with whole characters.
class DRIVETRAIN_INTERNAL TextStream {
 public:
  TextStream(const Tokenizer& tokenizer, std::vector<int32_t> prompt);
  std::string add(int32_t id);
  std::string rest() const;  // bytes that are no whole character

 private:
  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;
  std::string text_;
  size_t shown_ = 0;  // bytes of text_
};

}  // namespace drivetrain
