// The option resize_embeddings: a model of a folder with more rows of its vocabulary than the folder has.
#pragma once

#include <optional>

#include <drivetrain/weight_rules.h>

#include "hf_config.h"

namespace drivetrain::gpt {

struct GrownVocabulary {
  int64_t size = 0;
  AbsentRows rows = AbsentRows::mean;
};

// No value without the option. Error(config) for another form, or without a folder that says its vocabulary.
std::optional<GrownVocabulary> read_growth(const Options& options, const std::optional<FolderConfig>& folder);
// The option as read, with its default.
Value growth_value(const GrownVocabulary& growth);

// Error(config) where the folder's tensors have other rows than its config.json says: which of them hold tokens would
// be a guess. A folder without weights passes.
void check_rows(const FolderConfig& folder);

}  // namespace drivetrain::gpt
