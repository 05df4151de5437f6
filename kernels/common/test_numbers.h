// Numbers for the kernels' tests.
#pragma once

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace drivetrain::kernels::test {

inline constexpr double kUlp = std::numeric_limits<float>::epsilon();

// Normal with the given spread, from a fixed seed.
inline std::vector<float> normal_numbers(int64_t n, uint64_t seed, float spread = 1) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& value : x) value = normal(generator);
  return x;
}

// Cuts of [0, n) at odd places: single elements, uneven rests, empty pieces.
inline std::vector<int64_t> odd_cuts(int64_t n) {
  return {0, n / 7, n / 3 + 1 < n ? n / 3 + 1 : n, n - n / 9, n - n / 9, n};
}

// Calls f(begin, end) for the pieces between cuts, last piece first.
template <class F>
void in_pieces(const std::vector<int64_t>& cuts, const F& f) {
  for (size_t i = cuts.size() - 1; i > 0; --i) {
    if (cuts[i - 1] < cuts[i]) f(cuts[i - 1], cuts[i]);
  }
}

}  // namespace drivetrain::kernels::test
