// The tokens of a text and the bytes of tokens, for a model whose tokens are bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/plan_context.h>

namespace drivetrain::multiple_choice {

class Codec {
 public:
  // Error(config) if texts cannot be encoded for this model.
  explicit Codec(const ModelFacts& model);

  std::vector<int32_t> encode(const std::string& text) const;
  // What stands in front of a text, so that its first token is predicted too; nothing: there is no such token.
  std::optional<int32_t> prefix() const { return 0; }
  int64_t bytes_of(const std::vector<int32_t>& ids) const { return static_cast<int64_t>(ids.size()); }
};

// Whether tokens 0 to 255 of the model are bytes, as Model::byte_vocabulary has it.
bool is_byte_vocabulary(const ModelFacts& model);

}  // namespace drivetrain::multiple_choice
