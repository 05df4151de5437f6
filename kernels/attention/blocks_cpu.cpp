// The vector code between attention's products.
#include "kernels/attention/blocks.h"

#include "kernels/common/narrow.h"

#ifdef __x86_64__
#include <immintrin.h>

// GCC 12 takes the undefined inputs of its own intrinsics for mistakes.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
// The processor is asked before anything of this is called (product_unit).
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

namespace drivetrain::kernels {
namespace {

#define LANES inline __attribute__((always_inline))

constexpr int64_t kLanes = 16;
constexpr float kInfinity = __builtin_inff();

// 2^t within 1 ulp, 0 below -126; NaN stays. The polynomial is that of common/vector_math.h.
LANES __m512 exp2_lanes(__m512 t) {
  const __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), f = _mm512_sub_ps(t, n);
  __m512 p = _mm512_set1_ps(1.545318283e-4F);
  constexpr float kCoefficients[] = {1.339088633e-3F, 9.61808252e-3F, 5.550357071e-2F,
                                     0.2402265076F,   0.693147188F,   1.0F};
  for (const float c : kCoefficients) p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(c));
  const __mmask16 not_small = _mm512_cmp_ps_mask(t, _mm512_set1_ps(-126.0F), _CMP_NLT_UQ);
  return _mm512_maskz_scalef_ps(not_small, p, n);
}

// Lanes of the 16 columns from `column` on that are below `end`, or not below it.
LANES __mmask16 below(int64_t end, int64_t column) {
  const int64_t n = end - column;
  return static_cast<__mmask16>(n >= kLanes ? 0xFFFFU : n <= 0 ? 0U : (1U << n) - 1);
}
LANES __mmask16 from(int64_t begin, int64_t column) { return static_cast<__mmask16>(~below(begin, column)); }

// 32 columns of one row of an A operand.
LANES void store_pair(char* to, __m512 left, __m512 right) {
  _mm512_store_si512(to, (__m512i)_mm512_cvtne2ps_pbh(right, left));
}

LANES __m512 widened_lanes(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

LANES const float* score_at(const SoftmaxStep& s, int64_t row, int64_t column) {
  return s.scores + column / kSide * kBlockFloats + row * kSide + column % kSide;
}

// tanh within 2e-7: 1 - 2 / (1 + e^2x); below 0.3 a series, because there the difference loses digits.
LANES __m512 tanh_lanes(__m512 x) {
  const __m512 one = _mm512_set1_ps(1), square = _mm512_mul_ps(x, x);
  __m512 p = _mm512_set1_ps(62.0F / 2835);
  constexpr float kCoefficients[] = {-17.0F / 315, 2.0F / 15, -1.0F / 3};
  for (const float c : kCoefficients) p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(c));
  const __m512 near = _mm512_fmadd_ps(_mm512_mul_ps(p, square), x, x);
  const __m512 held = _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(-20)), _mm512_set1_ps(20));
  const __m512 power = exp2_lanes(_mm512_mul_ps(held, _mm512_set1_ps(2 * kLog2Of_e)));
  const __m512 far = _mm512_sub_ps(one, _mm512_div_ps(_mm512_set1_ps(2), _mm512_add_ps(one, power)));
  return _mm512_mask_mov_ps(far, _mm512_cmp_ps_mask(square, _mm512_set1_ps(0.09F), _CMP_LT_OQ), near);
}

// `begin`, `end`: columns that the row sees; all of them unless kMasked.
template <bool kMasked>
LANES void softmax_row(const SoftmaxStep& s, int64_t row, int64_t begin, int64_t end) {
  const int64_t columns = s.blocks * kSide;
  const __m512 lowest = _mm512_set1_ps(-kInfinity), scale = _mm512_set1_ps(s.scale);
  const auto scores = [&](int64_t c) {
    const __m512 x = _mm512_load_ps(score_at(s, row, c));
    return kMasked ? _mm512_mask_mov_ps(lowest, static_cast<__mmask16>(below(end, c) & from(begin, c)), x) : x;
  };
  __m512 most = lowest, other = lowest;
  for (int64_t c = 0; c < columns; c += 2 * kLanes) {
    most = _mm512_max_ps(most, scores(c));
    other = _mm512_max_ps(other, scores(c + kLanes));
  }
  const float before = s.maxima[row], here = _mm512_reduce_max_ps(_mm512_max_ps(most, other)) * s.scale;
  const float maximum = before > here ? before : here;
  const __m512 low = _mm512_set1_ps(maximum == -kInfinity ? 0 : maximum);  // no key so far: probabilities of 0
  const __m512 shrink = exp2_lanes(_mm512_sub_ps(_mm512_set1_ps(before), low));
  __m512 left_sum = _mm512_mul_ps(_mm512_load_ps(s.sums + row * kLanes), shrink), right_sum = _mm512_setzero_ps();
  char* to = s.out + row / kPanel * s.panel + row % kPanel * 64;
  for (int64_t c = 0; c < columns; c += 2 * kLanes, to += kPairBytes) {
    const __m512 left = exp2_lanes(_mm512_fmsub_ps(scores(c), scale, low)),
                 right = exp2_lanes(_mm512_fmsub_ps(scores(c + kLanes), scale, low));
    left_sum = _mm512_add_ps(left_sum, left);
    right_sum = _mm512_add_ps(right_sum, right);
    store_pair(to, left, right);
  }
  _mm512_store_ps(s.sums + row * kLanes, _mm512_add_ps(left_sum, right_sum));
  s.maxima[row] = maximum;
  s.shrink[row] = _mm512_cvtss_f32(shrink);
}

// Row r of the block is a key: probabilities and gradients of scores of 32 queries.
template <bool kMasked>
LANES void grad_pair(const GradStep& s, int64_t row, int64_t begin, int64_t end, int64_t column) {
  const __m512 scale = _mm512_set1_ps(s.scale);
  __m512 p[2], d[2];
  for (int64_t half = 0; half < 2; ++half) {
    const int64_t c = column + half * kLanes;
    const __m512 score = _mm512_load_ps(s.scores + row * kSide + c);
    p[half] = exp2_lanes(_mm512_fmsub_ps(score, scale, _mm512_load_ps(s.lse + c)));
    d[half] = _mm512_sub_ps(_mm512_load_ps(s.dprobabilities + row * kSide + c), _mm512_load_ps(s.delta + c));
    d[half] = _mm512_mul_ps(p[half], d[half]);
    if (s.capped) d[half] = _mm512_mul_ps(d[half], _mm512_fnmadd_ps(score, score, _mm512_set1_ps(1)));
    if (kMasked) {
      const auto seen = static_cast<__mmask16>(from(begin, c) & below(end, c));
      p[half] = _mm512_maskz_mov_ps(seen, p[half]);
      d[half] = _mm512_maskz_mov_ps(seen, d[half]);
    }
  }
  const int64_t at = (row / kPanel * kPanels + column / kPanel) * kPairBytes + row % kPanel * 64;
  store_pair(s.probabilities + at, p[0], p[1]);
  store_pair(s.dscores + at, d[0], d[1]);
}

template <class Store>
LANES void for_rows(const RowsEnd& e, const Store& store) {
  for (int64_t r = 0; r < e.rows; ++r) {
    const __m512 factor = _mm512_set1_ps(e.factors ? e.factors[r] : e.factor);
    for (int64_t c = 0; c < e.columns; c += kLanes)
      store(r * e.stride + c, below(e.columns, c), _mm512_mul_ps(_mm512_load_ps(e.x + r * kSide + c), factor));
  }
}

}  // namespace

void softmax_step(const SoftmaxStep& s) {
  const int64_t columns = s.blocks * kSide;
  for (int64_t row = 0; row < kSide; ++row) {
    const int64_t begin = s.begin + row, end = s.end + row < s.keys ? s.end + row : s.keys;
    begin <= 0 && end >= columns ? softmax_row<false>(s, row, 0, columns) : softmax_row<true>(s, row, begin, end);
  }
}

void tanh_of_blocks(float* x, int64_t blocks, float factor) {
  const __m512 factors = _mm512_set1_ps(factor);
  for (int64_t i = 0; i < blocks * kBlockFloats; i += kLanes)
    _mm512_store_ps(x + i, tanh_lanes(_mm512_mul_ps(_mm512_load_ps(x + i), factors)));
}

void scale_rows(float* x, const float* factors) {
  for (int64_t row = 0; row < kSide; ++row, x += kSide) {
    const __m512 factor = _mm512_set1_ps(factors[row]);
    for (int64_t c = 0; c < kSide; c += kLanes) _mm512_store_ps(x + c, _mm512_mul_ps(_mm512_load_ps(x + c), factor));
  }
}

void grad_step(const GradStep& s) {
  for (int64_t row = 0; row < kSide; ++row) {
    const int64_t begin = row < s.keys ? s.begin + row : kSide, end = s.end + row;
    for (int64_t c = 0; c < kSide; c += kPanel)
      begin <= 0 && end >= kSide ? grad_pair<false>(s, row, begin, end, c) : grad_pair<true>(s, row, begin, end, c);
  }
}

void write_rows(const RowsEnd& end, uint16_t* to) {
  for_rows(end, [&](int64_t at, __mmask16 some, __m512 x) {
    _mm256_mask_storeu_epi16(to + at, some, (__m256i)_mm512_cvtneps_pbh(x));
  });
}

void write_rows(const RowsEnd& end, float* to) {
  for_rows(end, [&](int64_t at, __mmask16 some, __m512 x) { _mm512_mask_storeu_ps(to + at, some, x); });
}

float sum_of_lanes(const float* lanes) { return _mm512_reduce_add_ps(_mm512_load_ps(lanes)); }

float dot_row(const uint16_t* a, const uint16_t* b, int64_t n) {
  __m512 sum = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += kLanes) {
    const __mmask16 some = below(n, i);
    sum = _mm512_fmadd_ps(widened_lanes(_mm256_maskz_loadu_epi16(some, a + i)),
                          widened_lanes(_mm256_maskz_loadu_epi16(some, b + i)), sum);
  }
  return _mm512_reduce_add_ps(sum);
}

#undef LANES

}  // namespace drivetrain::kernels

#else  // not x86-64: nothing of this is called

namespace drivetrain::kernels {

void softmax_step(const SoftmaxStep&) { __builtin_trap(); }
void tanh_of_blocks(float*, int64_t, float) { __builtin_trap(); }
void scale_rows(float*, const float*) { __builtin_trap(); }
void grad_step(const GradStep&) { __builtin_trap(); }
void write_rows(const RowsEnd&, uint16_t*) { __builtin_trap(); }
void write_rows(const RowsEnd&, float*) { __builtin_trap(); }
float sum_of_lanes(const float*) { __builtin_trap(); }
float dot_row(const uint16_t*, const uint16_t*, int64_t) { __builtin_trap(); }

}  // namespace drivetrain::kernels

#endif
