// Tiles of group_tile.h by AVX2.
#include "kernels/product/group_tile.h"

#ifdef __x86_64__
#include <immintrin.h>

// GCC 12 takes the undefined inputs of its own intrinsics for mistakes.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
// The processor is asked before anything of this is called (multiplies_groups).
#pragma GCC target("avx2,fma")

namespace drivetrain::kernels {
namespace {

// c := or += the sums of `Rows` rows of a tile with a panel.
template <int Rows>
void multiply(const float* a, const float* b, int64_t count, float* c, int64_t stride, Write how) {
  __m256 left[Rows], right[Rows];
#pragma GCC unroll 6
  for (int r = 0; r < Rows; ++r) {
    left[r] = _mm256_setzero_ps(), right[r] = _mm256_setzero_ps();
    if (how == Write::add) _mm_prefetch(reinterpret_cast<const char*>(c + r * stride), _MM_HINT_T0);
  }
  for (int64_t k = 0; k < count; ++k, a += NarrowTile::kRows, b += NarrowTile::kColumns) {
    const __m256 b_left = _mm256_load_ps(b), b_right = _mm256_load_ps(b + 8);
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r) {
      const __m256 of_row = _mm256_broadcast_ss(a + r);
      left[r] = _mm256_fmadd_ps(of_row, b_left, left[r]);
      right[r] = _mm256_fmadd_ps(of_row, b_right, right[r]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < Rows; ++r) {
    float* const to = c + r * stride;
    if (how == Write::past_caches) {
      _mm256_stream_ps(to, left[r]), _mm256_stream_ps(to + 8, right[r]);
    } else {
      const bool add = how == Write::add;
      _mm256_storeu_ps(to, add ? _mm256_add_ps(_mm256_loadu_ps(to), left[r]) : left[r]);
      _mm256_storeu_ps(to + 8, add ? _mm256_add_ps(_mm256_loadu_ps(to + 8), right[r]) : right[r]);
    }
  }
}

constexpr Multiply kMultiply[] = {multiply<1>, multiply<2>, multiply<3>, multiply<4>, multiply<5>, multiply<6>};

}  // namespace

const Multiply* NarrowTile::multiply() { return kMultiply; }

}  // namespace drivetrain::kernels
#endif
