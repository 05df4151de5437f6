#include "mixture.h"

#include <algorithm>
#include <numeric>

#include <drivetrain/error.h>
#include <drivetrain/random.h>
#include <drivetrain/toolkit/permutation.h>

namespace drivetrain::instruction {
namespace {

uint32_t low(uint64_t x) { return static_cast<uint32_t>(x); }
uint32_t high(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

int64_t permuted(int64_t i, int64_t count, uint64_t epoch, uint64_t site) {
  const auto words = philox({low(epoch), high(epoch), 0, 0}, {low(site), high(site)});
  return Permutation(count, uint64_t{words[1]} << 32 | words[0])(i);
}

// Whole numbers in the shares of the weights, with the sum `total`: the largest remainders are rounded up.
std::vector<int64_t> shared_out(int64_t total, const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> rows;
  std::vector<std::pair<double, size_t>> remainders;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double share = static_cast<double>(total) * weights[i] / sum;
    rows.push_back(static_cast<int64_t>(share));
    remainders.emplace_back(static_cast<double>(rows.back()) - share, i);
  }
  std::sort(remainders.begin(), remainders.end());
  int64_t rest = total - std::accumulate(rows.begin(), rows.end(), int64_t{0});
  for (size_t i = 0; rest > 0; i = (i + 1) % rows.size())
    if (weights[remainders[i].second] > 0) ++rows[remainders[i].second], --rest;
  return rows;
}

}  // namespace

Mixture::Mixture(const std::vector<int64_t>& counts, const std::vector<double>& weights) {
  rows_ = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (weights.empty()) {
    parts_.push_back({0, rows_, 0, rows_});
    return;
  }
  const std::vector<int64_t> rows = shared_out(rows_, weights);
  int64_t first = 0, first_row = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (rows[i] > 0 && counts[i] == 0)
      throw fail(ErrorCode::config, "dataset/instruction: files[", i, "] has the weight ", weights[i],
                 " and no conversation to learn from. Leave it out, or give it the weight 0");
    parts_.push_back({first, counts[i], first_row, rows[i]});
    first += counts[i], first_row += rows[i];
  }
}

int64_t Mixture::at(int64_t row, uint64_t site) const {
  const int64_t epoch = row / rows_;
  return in_part(permuted(row % rows_, rows_, static_cast<uint64_t>(epoch), site), epoch, site);
}

// Each file has epochs of its own: its conversations all come once before one comes again. A single part is in order
// already.
int64_t Mixture::in_part(int64_t i, int64_t epoch, uint64_t site) const {
  if (parts_.size() == 1) return i;
  const auto part = std::upper_bound(parts_.begin(), parts_.end(), i,
                                     [](int64_t row, const Part& p) { return row < p.first_row + p.rows; });
  const int64_t drawn = epoch * part->rows + (i - part->first_row);
  const auto file_site = site ^ hash_name(concat("file ", part - parts_.begin()));
  return part->first +
         permuted(drawn % part->count, part->count, static_cast<uint64_t>(drawn / part->count), file_site);
}

}  // namespace drivetrain::instruction
