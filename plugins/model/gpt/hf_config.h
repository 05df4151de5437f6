// Hugging Face's config.json: into a Shape, and back from one. Four families; what they can say and we cannot compute
// is refused with the reason. Errors: config, naming the file and the key.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <drivetrain/model.h>

#include "shape.h"

namespace drivetrain::gpt {

enum class Family { gpt2, llama, mistral, qwen2 };
const char* model_type(Family family);

struct FolderConfig {
  std::string path;  // of config.json
  Value config;      // all of it, unknown keys too
  Family family = Family::gpt2;
  Shape shape;
  std::string dtype;  // "bfloat16": of the weights, as the file says; "": it does not
  std::vector<std::pair<std::string, std::string>> unknown;  // keys that nobody here knows, and what is said of each
};

// No value: the folder has no config.json, as a checkpoint of another program has none.
std::optional<FolderConfig> read_folder(const std::string& folder);
FolderConfig parse_config(const Value& config, const std::string& path);

// The family that can hold this shape. Throws Error(config) naming the options that none has.
Family family_of(const Shape& shape);

// config.json as transformers 5 writes it, keys sorted, with the spellings that transformers 4 reads beside those of 5
// where they have two. Keys of `base` that say nothing about the shape are kept.
Value write_config(Family family, const Shape& shape, const Value& base);

// Where each parameter stands in such a folder (hf_rules.cpp). `config` is left empty.
WeightRules weight_rules(Family family, const Shape& shape);

}  // namespace drivetrain::gpt
