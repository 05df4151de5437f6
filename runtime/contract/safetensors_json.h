// The JSON inside a safetensors header, both ways. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "contract/safetensors_header.h"

namespace drivetrain {

struct SafetensorsJsonProblem {
  std::string message;  // empty: none
  size_t offset = 0;    // in the JSON
};

// Fills metadata and entries (in the order of the text). `text` is valid UTF-8 without NUL.
SafetensorsJsonProblem read_safetensors_json(std::string_view text, SafetensorsHeader& header);

// Metadata first, with sorted keys; then the entries in their order; no spaces.
std::string write_safetensors_json(const std::vector<SafetensorsEntry>& entries, const SafetensorsMetadata& metadata);

}  // namespace drivetrain
