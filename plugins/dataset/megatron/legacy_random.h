// NumPy's old generator, numpy.random.RandomState, whose order of draws is part of Megatron-Core's data format.
// Value type; thread: one.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace drivetrain::megatron {

class LegacyRandom {
 public:
  explicit LegacyRandom(uint32_t seed) : engine_(seed) {}

  // A number of [0, most]: 32 bits, or 64 where `most` needs them, masked and drawn again until one fits.
  uint64_t up_to(uint64_t most) {
    uint64_t mask = most;
    for (int shift = 1; shift <= 32; shift *= 2) mask |= mask >> shift;
    uint64_t drawn;
    do drawn = (most > UINT32_MAX ? high_word_first() : engine_()) & mask;
    while (drawn > most);
    return drawn;
  }

  // RandomState.shuffle of a one-dimensional array.
  template <class T>
  void shuffle(T* values, int64_t count) {
    for (int64_t i = count - 1; i > 0; --i) std::swap(values[i], values[up_to(static_cast<uint64_t>(i))]);
  }

 private:
  uint64_t high_word_first() {
    const uint64_t high = engine_();
    return high << 32 | engine_();
  }
  std::mt19937 engine_;
};

}  // namespace drivetrain::megatron
