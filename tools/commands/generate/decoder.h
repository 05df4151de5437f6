// Texts that grow token by token, several together: through the key/value cache where the model uses it, else each
// time from the whole text. Main thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <drivetrain/log.h>

#include "generate/inference.h"
#include "internal.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL Decoder {
 public:
  // Both outlive it. The log is told once why a model is computed without the cache, and once that a text has become
  // longer than the model's positions: from then on it sees the last of them only, and is computed without the cache.
  // Texts beside it stay in the cache.
  Decoder(Inference& model, Log& log);

  // Begins these texts, each of at least one token; none of them grows by more than `most` tokens.
  void begin(std::vector<std::vector<int64_t>> texts, int64_t most);
  // Which texts still grow, by their places in `begin`.
  const std::vector<size_t>& growing() const { return growing_; }
  // Logits of the token behind each of them: [growing, V] on the CPU.
  at::Tensor logits();
  // What comes behind each of them; nothing: the text has ended.
  void add(const std::vector<std::optional<int64_t>>& tokens);
  // Of the largest cache so far, in bytes.
  int64_t most_cache_bytes() const { return most_cache_bytes_; }

 private:
  bool fits(size_t text) const;  // in the model's positions
  bool takes_cache();
  void tell_length();
  void keep_in_cache();
  at::Tensor whole_texts(const std::vector<size_t>& texts);
  at::Tensor first_pass(std::vector<size_t> texts);
  at::Tensor next_pass();

  Inference& model_;
  Log& log_;
  const int64_t positions_;
  std::vector<std::vector<int64_t>> texts_;
  std::vector<size_t> growing_;
  int64_t most_ = 0;
  std::unique_ptr<GenerationCache> cache_;
  std::vector<size_t> cached_;  // the text of each row of the cache
  int64_t most_cache_bytes_ = 0;
  std::optional<bool> takes_cache_;  // nothing: not looked at yet
  bool said_length_ = false;
};

}  // namespace drivetrain
