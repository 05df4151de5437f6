// What texts need of memory while they grow: planned from the model's facts before its weights are read, and measured.
// Main thread.
#pragma once

#include <optional>
#include <string>

#include "internal.h"
#include "plan/prepared_run.h"

namespace drivetrain {

// Texts that are computed together: rows, tokens of the longest one, and those that come behind it at most.
struct GrowingTexts {
  int64_t rows = 1, prompt = 1, most = 0;
};

// In bytes.
struct GenerationMemory {
  double weights = 0;
  std::optional<double> keys;  // the key/value cache; nothing: the model does not say which heads it has
  double passing = 0;          // planned: of the first pass, a block's or the logits; measured: the rest of the peak
  double loading = 0;          // measured: all together at the peak while the weights were read
  double together() const { return weights + keys.value_or(0) + passing; }
};

DRIVETRAIN_INTERNAL GenerationMemory planned_generation(const PreparedRun& run, const GrowingTexts& texts);

// Lines to print. `measured`: beside the plan.
DRIVETRAIN_INTERNAL std::string generation_memory_text(const GrowingTexts& texts, const GenerationMemory& planned,
                                                       const std::optional<GenerationMemory>& measured = {});

}  // namespace drivetrain
