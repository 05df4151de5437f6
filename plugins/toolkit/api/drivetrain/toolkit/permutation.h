// A permutation of [0, n) that is computed and not stored: a Feistel network over the smallest power of two that holds
// n, walked along its cycle until it is below n again (Black and Rogaway 2002, "Ciphers with arbitrary finite
// domains"). The same numbers on every machine. Const calls from any thread.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace drivetrain {

class Permutation {
 public:
  // `key`: 64 random bits.
  Permutation(int64_t n, uint64_t key) : n_(static_cast<uint64_t>(n)) {
    const int bits = n > 2 ? static_cast<int>(std::bit_width(n_ - 1)) : 1;
    low_bits_ = bits / 2;
    low_mask_ = (uint64_t{1} << low_bits_) - 1, high_mask_ = (uint64_t{1} << (bits - low_bits_)) - 1;
    for (uint64_t& round : rounds_) round = mix(key += 0x9e3779b97f4a7c15u);
  }

  // Of i in [0, n).
  int64_t operator()(int64_t i) const {
    auto x = static_cast<uint64_t>(i);
    do x = encrypt(x);
    while (x >= n_);
    return static_cast<int64_t>(x);
  }

 private:
  // The finaliser of splitmix64 (Steele et al. 2014): every input bit changes every output bit.
  static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

  uint64_t encrypt(uint64_t x) const {
    uint64_t low = x & low_mask_, high = x >> low_bits_;
    for (size_t round = 0; round < rounds_.size(); round += 2) {
      high ^= mix(low + rounds_[round]) & high_mask_;
      low ^= mix(high + rounds_[round + 1]) & low_mask_;
    }
    return high << low_bits_ | low;
  }

  uint64_t n_, low_mask_, high_mask_;
  int low_bits_;
  std::array<uint64_t, 8> rounds_;
};

}  // namespace drivetrain
