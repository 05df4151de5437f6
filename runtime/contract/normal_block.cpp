#include "contract/normal_block.h"

#include <cstring>

// The project builds with -O2, at which g++ leaves these loops scalar (-fno-math-errno, which vector square roots need,
// is set for everything). A fused multiply-add would make the bits depend on the machine.
#pragma GCC push_options
#pragma GCC optimize("O3", "no-trapping-math", "fp-contract=off")

#if defined(__x86_64__)
#define DRIVETRAIN_AVX2 __attribute__((target("avx2")))
#endif

namespace drivetrain::philox_detail {
namespace {

using Lane = std::array<uint32_t, kLanes>;
#define DRIVETRAIN_INLINE inline __attribute__((always_inline))

DRIVETRAIN_INLINE void draw_body(Words& words, uint64_t first, uint64_t sample, std::array<uint32_t, 2> key) {
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t block = first + static_cast<uint64_t>(i);
    uint32_t a = static_cast<uint32_t>(block), b = static_cast<uint32_t>(block >> 32);
    uint32_t c = static_cast<uint32_t>(sample), d = static_cast<uint32_t>(sample >> 32);
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; ++round) {
      const uint64_t low = static_cast<uint64_t>(0xD2511F53u) * a, high = static_cast<uint64_t>(0xCD9E8D57u) * c;
      a = static_cast<uint32_t>(high >> 32) ^ b ^ k0, b = static_cast<uint32_t>(high);
      c = static_cast<uint32_t>(low >> 32) ^ d ^ k1, d = static_cast<uint32_t>(low);
      k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    words.w[0][i] = a, words.w[1][i] = b, words.w[2][i] = c, words.w[3][i] = d;
  }
}

DRIVETRAIN_INLINE float as_float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
DRIVETRAIN_INLINE uint32_t as_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

// sqrt(-2 ln u), u = (word / 2 + 1/2) / 2^31 in (0, 1].
DRIVETRAIN_INLINE float radius(uint32_t word) {
  const float u = (static_cast<float>(static_cast<int32_t>(word >> 1)) + 0.5f) * 0x1p-31f;
  // u = mantissa * 2^exponent with the mantissa in [sqrt(1/2), sqrt(2)).
  const uint32_t bits = as_bits(u) - 0x3F3504F3u;
  const float exponent = static_cast<float>(static_cast<int32_t>(bits) >> 23);
  const float x = as_float((bits & 0x007FFFFFu) + 0x3F3504F3u) - 1.0f;
  const float xx = x * x;
  float p = 7.0376836292e-2f;
  p = p * x - 1.1514610310e-1f, p = p * x + 1.1676998740e-1f, p = p * x - 1.2420140846e-1f;
  p = p * x + 1.4249322787e-1f, p = p * x - 1.6668057665e-1f, p = p * x + 2.0000714765e-1f;
  p = p * x - 2.4999993993e-1f, p = p * x + 3.3333331174e-1f;
  const float y = p * x * xx - 2.12194440e-4f * exponent - 0.5f * xx;
  const float logarithm = x + y + 0.693359375f * exponent;
  return __builtin_sqrtf(__builtin_fabsf(2.0f * logarithm));  // the logarithm is never positive
}

// cos and sin of 2 pi word / 2^32. The quadrant is exact integer arithmetic.
DRIVETRAIN_INLINE void direction(uint32_t word, float& cosine, float& sine) {
  const uint32_t quadrant = (word + 0x20000000u) >> 30;
  const float t = static_cast<float>(static_cast<int32_t>(word - (quadrant << 30))) * 1.46291807926715968e-9f;
  const float tt = t * t;
  const float s = ((-1.9515295891e-4f * tt + 8.3321608736e-3f) * tt - 1.6666654611e-1f) * tt * t + t;
  const float c =
      ((2.443315711809948e-5f * tt - 1.388731625493765e-3f) * tt + 4.166664568298827e-2f) * tt * tt - 0.5f * tt + 1.0f;
  const uint32_t swap = 0u - (quadrant & 1u);
  const uint32_t cosine_bits = (as_bits(s) & swap) | (as_bits(c) & ~swap);
  const uint32_t sine_bits = (as_bits(c) & swap) | (as_bits(s) & ~swap);
  cosine = as_float(cosine_bits ^ (((quadrant + 1u) & 2u) << 30));
  sine = as_float(sine_bits ^ ((quadrant & 2u) << 30));
}

DRIVETRAIN_INLINE void normals_body(const Words& words, float* out) {
  alignas(64) float z[4][kLanes];
  for (int pair = 0; pair < 2; ++pair) {
    const Lane &lengths = words.w[2 * pair], &angles = words.w[2 * pair + 1];
    for (int i = 0; i < kLanes; ++i) {
      float cosine, sine;
      direction(angles[i], cosine, sine);
      const float r = radius(lengths[i]);
      z[2 * pair][i] = r * cosine, z[2 * pair + 1][i] = r * sine;
    }
  }
  for (int i = 0; i < kLanes; ++i)
    for (int j = 0; j < 4; ++j) out[4 * i + j] = z[j][i];
}

DRIVETRAIN_INLINE void uniforms_body(const Words& words, float* out) {
  for (int i = 0; i < kLanes; ++i)
    for (int j = 0; j < 4; ++j)
      out[4 * i + j] = static_cast<float>(static_cast<int32_t>(words.w[j][i] >> 8)) * 0x1p-24f;
}

#ifdef DRIVETRAIN_AVX2
DRIVETRAIN_AVX2 void draw_avx2(Words& words, uint64_t first, uint64_t sample, std::array<uint32_t, 2> key) {
  draw_body(words, first, sample, key);
}
DRIVETRAIN_AVX2 void normals_avx2(const Words& words, float* out) { normals_body(words, out); }
DRIVETRAIN_AVX2 void uniforms_avx2(const Words& words, float* out) { uniforms_body(words, out); }
const bool has_avx2 = __builtin_cpu_supports("avx2");
#endif

}  // namespace

void draw(Words& words, uint64_t first, uint64_t sample, std::array<uint32_t, 2> key) {
#ifdef DRIVETRAIN_AVX2
  if (has_avx2) return draw_avx2(words, first, sample, key);
#endif
  draw_body(words, first, sample, key);
}

void normals(const Words& words, float* out) {
#ifdef DRIVETRAIN_AVX2
  if (has_avx2) return normals_avx2(words, out);
#endif
  normals_body(words, out);
}

void uniforms(const Words& words, float* out) {
#ifdef DRIVETRAIN_AVX2
  if (has_avx2) return uniforms_avx2(words, out);
#endif
  uniforms_body(words, out);
}

#undef DRIVETRAIN_AVX2
#undef DRIVETRAIN_INLINE

}  // namespace drivetrain::philox_detail

#pragma GCC pop_options
