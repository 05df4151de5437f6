// Attention over rows of several documents beside the same documents in rows of their own, padded.
#pragma once

#include <drivetrain/attention.h>
#include <drivetrain/random.h>

#include "bench/plugin_host.h"
#include "bench/timing.h"

namespace drivetrain {

// Lengths of a log-normal mix (sigma 0.8) with about this mean, at most `length`, that fill rows of `length`: a
// document that meets the end of its row ends there. Sorted by place.
struct DocumentMix {
  int64_t rows = 0, length = 0;
  std::vector<int64_t> cu_seqlens;

  DocumentMix(int64_t rows, int64_t length, int64_t mean);
  std::string text() const;
};

// Heads of q, heads of k and v, size of a head.
struct HeadShape {
  int64_t heads = 0, groups = 0, size = 0;
  at::ScalarType dtype = at::kFloat;
};

// For every installed attention: forward and backward packed, padded, and the ratio of the two; adds to the report.
void bench_documents(BenchReport& report, const PluginHost& host, const DocumentMix& mix, const HeadShape& shape,
                     const at::Device& device, int64_t rounds);

}  // namespace drivetrain
