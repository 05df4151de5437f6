// In which order the samples of a part come: sample k is `seq_length` tokens and one more, the last label.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "split.h"
#include "token_file.h"

namespace drivetrain::megatron {

// A file of the blend with its sequences of one part.
struct Member {
  std::shared_ptr<const TokenFile> file;
  Range range;
};

class Order {
 public:
  virtual ~Order() = default;
  virtual int64_t samples() const = 0;  // how many there are; -1: any number
  // Sets `tokens` to the seq_length + 1 tokens of sample k. Thread: one.
  virtual void read(int64_t k, int64_t* tokens) = 0;
  // Tells the system that sample k is read soon.
  virtual void expect(int64_t) {}
  // What resolved.json notes; `samples`: how many the run takes.
  virtual Value notes(int64_t samples) = 0;
  // One line for each file of which a new epoch begins with the samples [first, end).
  virtual std::vector<std::string> epochs_begun(int64_t, int64_t) { return {}; }
};

}  // namespace drivetrain::megatron
