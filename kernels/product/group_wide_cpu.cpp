// Tiles of group_tile.h by AVX512.
#include "kernels/product/group_tile.h"

#ifdef __x86_64__
#include <immintrin.h>

// GCC 12 takes the undefined inputs of its own intrinsics for mistakes.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
// The processor is asked before anything of this is called (multiplies_groups_wide).
#pragma GCC target("avx512f")

namespace drivetrain::kernels {
namespace {

template <int Rows>
void multiply(const float* a, const float* b, int64_t count, float* c, int64_t stride, Write how) {
  __m512 left[Rows], right[Rows];
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r) {
    left[r] = _mm512_setzero_ps(), right[r] = _mm512_setzero_ps();
    if (how == Write::add) {
      _mm_prefetch(reinterpret_cast<const char*>(c + r * stride), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(c + r * stride + 16), _MM_HINT_T0);
    }
  }
  for (int64_t k = 0; k < count; ++k, a += WideTile::kRows, b += WideTile::kColumns) {
    const __m512 b_left = _mm512_load_ps(b), b_right = _mm512_load_ps(b + 16);
#pragma GCC unroll 12
    for (int r = 0; r < Rows; ++r) {
      const __m512 of_row = _mm512_set1_ps(a[r]);
      left[r] = _mm512_fmadd_ps(of_row, b_left, left[r]);
      right[r] = _mm512_fmadd_ps(of_row, b_right, right[r]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r) {
    float* const to = c + r * stride;
    if (how == Write::past_caches) {
      _mm512_stream_ps(to, left[r]), _mm512_stream_ps(to + 16, right[r]);
    } else {
      const bool add = how == Write::add;
      _mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), left[r]) : left[r]);
      _mm512_storeu_ps(to + 16, add ? _mm512_add_ps(_mm512_loadu_ps(to + 16), right[r]) : right[r]);
    }
  }
}

constexpr Multiply kMultiply[] = {multiply<1>, multiply<2>, multiply<3>, multiply<4>,  multiply<5>,  multiply<6>,
                                  multiply<7>, multiply<8>, multiply<9>, multiply<10>, multiply<11>, multiply<12>};

}  // namespace

const Multiply* WideTile::multiply() { return kMultiply; }

}  // namespace drivetrain::kernels
#endif
