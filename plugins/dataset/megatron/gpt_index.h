// The sample index of one file and part as GPTDataset of Megatron-Core 0.16.1 makes it: documents (its word for
// sequences) in shuffled order, samples cut from their concatenation, each sharing one token with the next, and the
// samples in shuffled order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "npy_file.h"
#include "split.h"

namespace drivetrain::megatron {

// What follows from the number of tokens alone.
struct GptShape {
  int64_t tokens = 0, seq_length = 0;
  int64_t epochs = 1;
  int64_t samples = 0;  // of all epochs
  // The last epoch is shuffled for itself if less than four fifths of it are asked for; before that come `before`.
  bool last_apart = false;
  int64_t before = 0;
};
// `asked`: how many samples are wanted; no value: as many as one epoch has. tokens: at least 1.
GptShape gpt_shape(int64_t tokens, int64_t seq_length, std::optional<int64_t> asked);

struct GptSpan {
  int64_t sequence = 0, first = 0;
  int64_t count = -1;  // tokens; -1: to its end
};

// Thread: const calls from any thread.
class GptIndex {
 public:
  // `lengths`: of the sequences in `range`. Error(config) if it needs more memory than the host has.
  static GptIndex build(const std::vector<int32_t>& lengths, const Range& range, const GptShape& shape, uint32_t seed);
  // Files by Megatron-Core's names: BASE-document_index.npy and so on. No value if they have other sizes.
  static std::optional<GptIndex> load(const std::string& base, const Range& range, const GptShape& shape);
  void write(const std::string& base) const;

  int64_t samples() const { return shuffle_.count(); }
  // What sample k is made of: seq_length + 1 tokens. Error(io) if a cached index does not fit.
  std::vector<GptSpan> sample(int64_t k) const;

 private:
  int64_t document(int64_t place) const;

  Range range_;
  IntArray documents_, samples_, shuffle_;
};

}  // namespace drivetrain::megatron
