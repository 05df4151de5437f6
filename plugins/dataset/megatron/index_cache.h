// Folders in which Megatron-Core keeps sample indices: BASE-description.txt says in JSON what an index was made for,
// and BASE-{document,sample,shuffle}_index.npy are the index.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpt_index.h"
#include "split.h"

namespace drivetrain::megatron {

struct IndexRequest {
  std::string prefix;
  int64_t part = 0;
  std::optional<int64_t> asked;  // number of samples
  int64_t seq_length = 0;
  uint32_t seed = 0;
  std::string split;  // as it was written
};

// An index in `folder` that was made for this, whatever tokenizer it names; no value if there is none. Thread: any.
std::optional<GptIndex> find_index(const std::string& folder, const IndexRequest& request, const Split& split,
                                   const Range& range, const GptShape& shape);
// Writes one with its description, which comes last. Error(io) if that fails.
void keep_index(const std::string& folder, const IndexRequest& request, const Split& split, const GptIndex& index);

}  // namespace drivetrain::megatron
