// The line that tells how a preparation goes: share done, rate, time left. One thread.
#pragma once

#include <chrono>
#include <vector>

#include <drivetrain/log.h>

#include "data_tools/prepare_progress.h"
#include "data_tools/text_inputs.h"

namespace drivetrain {

// Bytes of the inputs before a place.
uint64_t bytes_before(const std::vector<TextInput>& inputs, const InputPlace& place);

class RateLine {
 public:
  // `skipped`: bytes that were done before this preparation. Both lists and the log outlive this.
  RateLine(const std::vector<TextInput>& inputs, uint64_t skipped, Log& log);
  // On a terminal every half second, in a log every half minute.
  void show(const PrepareProgress& progress);

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<uint64_t> before_;  // bytes before each file, and of all
  const uint64_t skipped_;
  Log& log_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_ = begin_, logged_ = begin_;
};

}  // namespace drivetrain
