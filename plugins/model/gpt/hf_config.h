// Hugging Face's config.json: into a Shape, and back from one, by the rows of a family (family.h). What it can say and
// we cannot compute is refused with the reason. Errors: config, naming the file and the key.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <drivetrain/model.h>

#include "family.h"

namespace drivetrain::gpt {

struct FolderConfig {
  std::string path;  // of config.json
  Value config;      // all of it, unknown keys too
  FamilyPtr family;
  Shape shape;
  std::string dtype;  // "bfloat16": of the weights, as the file says; "": it does not
  std::vector<std::pair<std::string, std::string>> unknown;  // keys that nobody here knows, and what is said of each
};

// No value: the folder has no config.json, as a checkpoint of another program has none. `family`: the option.
std::optional<FolderConfig> read_folder(const std::string& folder, const FamilyPtr& family);
// `family` null: by the file's model_type. `tensors`: names in the folder, for the message where no family has that.
FolderConfig parse_config(const Value& config, const std::string& path, const FamilyPtr& family = nullptr,
                          const std::vector<std::string>& tensors = {});

// config.json as transformers 5 writes it, keys sorted, with the spellings that transformers 4, vLLM and llama.cpp read
// beside those of 5 where they have two. What `base` says is kept where it is so.
Value write_config(const Family& family, const Shape& shape, const Value& base);

// Where each parameter stands in such a folder (hf_rules.cpp). `config` is left empty. `absent`: what rows of the
// vocabulary start from that a folder lacks. Error(config) where the family has no tensor for a parameter.
WeightRules weight_rules(const Family& family, const Shape& shape, AbsentRows absent = AbsentRows::refused);

}  // namespace drivetrain::gpt
