// `data show` and `data verify`: what token files hold, and whether they are whole. Main thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <drivetrain/tokenizer.h>
#include <drivetrain/value.h>

#include "data_tools/token_file.h"
#include "internal.h"

namespace drivetrain {

// How many documents have so many tokens: bar i counts those of 2^i up to below 2^(i+1), the first also those of none.
struct LengthHistogram {
  std::vector<uint64_t> bars;
  uint64_t shortest = 0, median = 0, longest = 0;
  double mean = 0;
};
DRIVETRAIN_INTERNAL LengthHistogram length_histogram(const TokenFile& file);
DRIVETRAIN_INTERNAL std::string histogram_svg(const LengthHistogram& histogram, const std::string& title);

// A document as ids and, with a tokenizer, as text.
struct DocumentSample {
  uint64_t document = 0, length = 0;
  std::vector<int64_t> ids;  // the first ones
  std::optional<std::string> text;
};
// Error(config) if there is no such document or the tokenizer is of another vocabulary.
DRIVETRAIN_INTERNAL DocumentSample sample_document(const TokenFile& file, uint64_t document, uint64_t most,
                                                   const Tokenizer* tokenizer);

DRIVETRAIN_INTERNAL std::string show_text(const TokenFile& file, const LengthHistogram& histogram,
                                          const DocumentSample& sample);
DRIVETRAIN_INTERNAL Value show_value(const TokenFile& file, const LengthHistogram& histogram,
                                     const DocumentSample& sample);

// All checks; the problems found, each with file and place. `vocab_size` 0: of ids only that none is negative.
DRIVETRAIN_INTERNAL std::vector<std::string> verify_token_file(const TokenFile& file, int64_t vocab_size);
// Error(io) if the form of the files is not right.
DRIVETRAIN_INTERNAL void want_whole_file(const TokenFile& file);

}  // namespace drivetrain
