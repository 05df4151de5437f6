// Philox 4x32 with 10 rounds, for host and device.
//
// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"; its known answers are in the tests.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define DRIVETRAIN_EVERYWHERE __host__ __device__ __forceinline__
#else
#define DRIVETRAIN_EVERYWHERE inline
#endif

namespace drivetrain::kernels {

struct PhiloxWords {
  uint32_t word[4];
};

// The words of block `block` of sample `sample`.
DRIVETRAIN_EVERYWHERE PhiloxWords philox_block(uint64_t block, uint64_t sample, uint32_t key0, uint32_t key1) {
  uint32_t a = static_cast<uint32_t>(block), b = static_cast<uint32_t>(block >> 32);
  uint32_t c = static_cast<uint32_t>(sample), d = static_cast<uint32_t>(sample >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t low = uint64_t{0xD2511F53U} * a, high = uint64_t{0xCD9E8D57U} * c;
    a = static_cast<uint32_t>(high >> 32) ^ b ^ key0, b = static_cast<uint32_t>(high);
    c = static_cast<uint32_t>(low >> 32) ^ d ^ key1, d = static_cast<uint32_t>(low);
    key0 += 0x9E3779B9U, key1 += 0xBB67AE85U;
  }
  return {{a, b, c, d}};
}

// In [0, 1): 24 bits, exact in float32.
DRIVETRAIN_EVERYWHERE float uniform_of(uint32_t word) {
  return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24F;
}

}  // namespace drivetrain::kernels
