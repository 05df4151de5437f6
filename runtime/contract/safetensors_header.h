// The header of a safetensors file: which tensors there are, and where. Reading checks everything the format promises
// and refuses what the reference reader lets pass silently (duplicate names, unknown fields, null metadata, control
// characters).
//
// Source: huggingface/safetensors, README.md and safetensors/src/tensor.rs; the checks come in the order of the
// reference. Value semantics; any thread. Errors: Error(io) naming the file, the tensor, the byte and what to do.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <drivetrain/toolkit/files/safetensors_dtype.h>

namespace drivetrain {

struct SafetensorsEntry {
  std::string name;
  const SafetensorsDtype* dtype = nullptr;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // in the data that follow the header
};
using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  SafetensorsMetadata metadata;
  std::vector<SafetensorsEntry> entries;  // in file order
  uint64_t data_offset = 0;               // of the data, from the beginning of the file
};

// Bytes of the file that its header takes, its length included, by the first bytes of the file (8, or all there are).
uint64_t safetensors_header_bytes(const std::string& path, std::string_view first_bytes, uint64_t file_bytes);

// `head`: the first bytes of the file, at least those of its header.
SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view head, uint64_t file_bytes);

// The first bytes of a file that holds `entries` in their order: length and padded JSON.
std::string safetensors_header_text(const std::vector<SafetensorsEntry>& entries, const SafetensorsMetadata& metadata);

}  // namespace drivetrain
