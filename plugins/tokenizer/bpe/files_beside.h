// What tokenizer_config.json and special_tokens_map.json say, the files of transformers beside a tokenizer.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "added_tokens.h"

namespace drivetrain::bpe {

// A token and what it is for.
struct NamedToken {
  std::string key;         // "eos_token"
  AddedToken token{};      // without its id
  std::string file{};      // that says so; empty: the class has it so
  bool has_flags = false;  // the file gives the flags of `token`
};

struct FilesBeside {
  std::string folder;
  std::vector<std::string> files;  // those that were read and said something; absolute
  Value config;                    // of tokenizer_config.json; null: there is none
  std::string config_path;
  std::vector<std::string> keys_said;  // also those that are null
  std::vector<NamedToken> named;

  const NamedToken* find(std::string_view key) const;  // null: no token
};

// The tokens of these keys. Where both files have a key, tokenizer_config.json counts.
FilesBeside read_files_beside(const std::string& folder, std::span<const char* const> keys);

inline constexpr const char* kAllTokenKeys[] = {
    "bos_token",           "eos_token", "pad_token",  "unk_token",
    "cls_token",           "sep_token", "mask_token", "additional_special_tokens",
    "extra_special_tokens"};

}  // namespace drivetrain::bpe
