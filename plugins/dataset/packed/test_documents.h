// Documents for tests: token s of document d is d * 1000 + s, its label the next one, and -100 at the end.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <drivetrain/dataset.h>
#include <drivetrain/random.h>

namespace drivetrain::test {

class NumberedDocuments : public Documents {
 public:
  explicit NumberedDocuments(std::vector<int64_t> lengths) : lengths_(std::move(lengths)) {}
  int64_t count() const override { return static_cast<int64_t>(lengths_.size()); }
  int64_t length(int64_t d) const override { return lengths_.at(static_cast<size_t>(d)); }
  void read(int64_t d, int64_t first, int64_t count, int64_t* tokens, int64_t* labels) const override {
    for (int64_t s = first; s < first + count; ++s) {
      *tokens++ = d * 1000 + s;
      *labels++ = s + 1 < length(d) ? d * 1000 + s + 1 : -100;
    }
  }

 private:
  std::vector<int64_t> lengths_;
};

// Lengths with a log-normal distribution, as those of texts have, of this mean.
inline std::vector<int64_t> log_normal_lengths(int64_t count, double mean, double sigma, uint32_t seed = 1) {
  std::vector<int64_t> lengths;
  for (uint32_t i = 0; i < static_cast<uint32_t>(count); ++i) {
    const auto bits = philox({i, 0, 0, 0}, {seed, 0});
    const double u = (bits[0] + 0.5) * 0x1p-32, angle = bits[1] * 0x1p-32 * 2 * M_PI;
    const double normal = std::sqrt(-2 * std::log(u)) * std::cos(angle);
    lengths.push_back(std::max<int64_t>(1, std::llround(mean * std::exp(sigma * normal - sigma * sigma / 2))));
  }
  return lengths;
}

}  // namespace drivetrain::test
