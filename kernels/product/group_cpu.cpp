// A is packed in tiles of 6 rows, B in panels of 16 columns; 12 registers hold the sums of a tile and a panel.
#include "kernels/product/group.h"

#include <algorithm>

#include "kernels/common/narrow.h"

#ifdef __x86_64__
#include <immintrin.h>

// GCC 12 takes the undefined inputs of its own intrinsics for mistakes.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
// The processor is asked before anything of this is called (multiplies_groups).
#pragma GCC target("avx2,fma")

namespace drivetrain::kernels {
namespace {

constexpr int64_t kTileRows = 6, kColumns = 16;
// Columns that are packed at a time where rows of B lie far from each other.
constexpr int64_t kStrip = 64;
// Summands whose sum is formed before it is added to C: of a panel of this height half the first cache is left.
constexpr int64_t kSummands = 256;
// Floats that are packed at a time, of A and of B: both stay in the second cache.
constexpr int64_t kPackedA = 49152, kPackedB = 32768;

int64_t rounded_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

// Rows [first, first + rows) of A, columns alike of B; summands [k, k + count).
struct Piece {
  int64_t first, size, k, count;
};

template <class T>
DRIVETRAIN_INLINE const T* stored_row(const void* data, int64_t stride, const int64_t* rows, int64_t row) {
  return static_cast<const T*>(data) + (rows ? rows[row] : row) * stride;
}

// [count][6]. Rows that a tile lacks are left as they are: nobody reads them.
template <class T>
void pack_a(const GroupProduct& op, const Piece& p, float* out) {
  if (op.a_transposed) {
    for (int64_t k = 0; k < p.count; ++k) {
      const T* const from = stored_row<T>(op.a, op.a_stride, op.a_rows, p.k + k) + p.first;
      for (int64_t r = 0; r < p.size; ++r) out[k * kTileRows + r] = widened(from[r]);
    }
    return;
  }
  for (int64_t r = 0; r < p.size; ++r) {
    const T* const from = stored_row<T>(op.a, op.a_stride, op.a_rows, p.first + r) + p.k;
    for (int64_t k = 0; k < p.count; ++k) out[k * kTileRows + r] = widened(from[k]);
  }
}

DRIVETRAIN_INLINE __m128 four(const float* from) { return _mm_loadu_ps(from); }
DRIVETRAIN_INLINE __m128 four(const Bf16* from) {
  return _mm_castsi128_ps(
      _mm_slli_epi32(_mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))), 16));
}
DRIVETRAIN_INLINE __m128 four(const F16* from) {
  return _mm_setr_ps(widened(from[0]), widened(from[1]), widened(from[2]), widened(from[3]));
}

// Four summands of four columns that lie in four rows.
template <class T>
DRIVETRAIN_INLINE void turn_four(const T* const (&rows)[4], int64_t k, float* out) {
  const __m128 r0 = four(rows[0] + k), r1 = four(rows[1] + k), r2 = four(rows[2] + k), r3 = four(rows[3] + k);
  const __m128 low0 = _mm_unpacklo_ps(r0, r1), high0 = _mm_unpackhi_ps(r0, r1), low1 = _mm_unpacklo_ps(r2, r3),
               high1 = _mm_unpackhi_ps(r2, r3);
  _mm_store_ps(out, _mm_movelh_ps(low0, low1));
  _mm_store_ps(out + kColumns, _mm_movehl_ps(low1, low0));
  _mm_store_ps(out + 2 * kColumns, _mm_movelh_ps(high0, high1));
  _mm_store_ps(out + 3 * kColumns, _mm_movehl_ps(high1, high0));
}

// Of a whole panel that lies in 16 rows.
template <class T>
void turn_columns(const GroupProduct& op, const Piece& p, float* out) {
  for (int64_t c = 0; c < kColumns; c += 4) {
    const T* rows[4];
    for (int64_t i = 0; i < 4; ++i) rows[i] = stored_row<T>(op.b, op.b_stride, op.b_rows, p.first + c + i) + p.k;
    int64_t k = 0;
    for (; k + 4 <= p.count; k += 4) turn_four(rows, k, out + k * kColumns + c);
    for (; k < p.count; ++k)
      for (int64_t i = 0; i < 4; ++i) out[k * kColumns + c + i] = widened(rows[i][k]);
  }
}

// A panel that is not whole: columns that it lacks are zeros.
template <class T>
void pack_rest(const GroupProduct& op, const Piece& p, float* out) {
  std::fill_n(out, p.count * kColumns, 0.0F);
  for (int64_t k = 0; k < p.count; ++k)
    for (int64_t c = 0; c < p.size; ++c)
      out[k * kColumns + c] =
          widened(op.b_transposed ? stored_row<T>(op.b, op.b_stride, op.b_rows, p.first + c)[p.k + k]
                                  : stored_row<T>(op.b, op.b_stride, op.b_rows, p.k + k)[p.first + c]);
}

// Panels [count][16] one after another. Rows of B lie far from each other, so each is read once for all panels.
template <class T>
void pack_b(const GroupProduct& op, const Piece& p, float* out) {
  const int64_t whole = p.size / kColumns * kColumns;
  if (whole < p.size) pack_rest<T>(op, {p.first + whole, p.size - whole, p.k, p.count}, out + whole * p.count);
  if (op.b_transposed) {
    for (int64_t c = 0; c < whole; c += kColumns)
      turn_columns<T>(op, {p.first + c, kColumns, p.k, p.count}, out + c * p.count);
    return;
  }
  for (int64_t k = 0; k < p.count; ++k) {
    const T* const from = stored_row<T>(op.b, op.b_stride, op.b_rows, p.k + k) + p.first;
    for (int64_t c = 0; c < whole; c += 4)
      _mm_store_ps(out + c / kColumns * kColumns * p.count + k * kColumns + c % kColumns, four(from + c));
  }
}

// Asks for part `part` of `parts` of what is packed next, so that packing it does not wait for memory.
template <class T>
void fetch(const GroupProduct& op, const Piece& p, int64_t part, int64_t parts) {
  constexpr int64_t kLine = 64 / sizeof(T);
  const int64_t rows = op.b_transposed ? p.size : p.count, first_row = op.b_transposed ? p.first : p.k,
                width = op.b_transposed ? p.count : p.size, first = op.b_transposed ? p.k : p.first;
  const int64_t lines = blocks_of(width, kLine), all = rows * lines;
  for (int64_t i = all * part / parts; i < all * (part + 1) / parts; ++i)
    _mm_prefetch(reinterpret_cast<const char*>(stored_row<T>(op.b, op.b_stride, op.b_rows, first_row + i / lines) +
                                               first + i % lines * kLine),
                 _MM_HINT_T1);
}

enum class Write : uint8_t { plain, past_caches, add };

// c := or += the sums of `Rows` rows of a tile with a panel.
template <int Rows>
void multiply(const float* a, const float* b, int64_t count, float* c, int64_t stride, Write how) {
  __m256 left[Rows], right[Rows];
#pragma GCC unroll 6
  for (int r = 0; r < Rows; ++r) {
    left[r] = _mm256_setzero_ps(), right[r] = _mm256_setzero_ps();
    if (how == Write::add) _mm_prefetch(reinterpret_cast<const char*>(c + r * stride), _MM_HINT_T0);
  }
  for (int64_t k = 0; k < count; ++k, a += kTileRows, b += kColumns) {
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

using Multiply = void (*)(const float* a, const float* b, int64_t count, float* c, int64_t stride, Write how);
constexpr Multiply kMultiply[] = {multiply<1>, multiply<2>, multiply<3>, multiply<4>, multiply<5>, multiply<6>};

// Where sums go: C itself, or float32 beside it, whose rows are whole panels.
struct Sums {
  float* data;
  int64_t stride, columns;
  Write how;

  void add(const Piece& rows, const float* a, const Piece& columns_of, const float* b) const {
    float* const to = data + rows.first * stride + columns_of.first;
    const int64_t there = std::min<int64_t>(kColumns, columns - columns_of.first);
    if (there == kColumns) return kMultiply[rows.size - 1](a, b, rows.count, to, stride, how);
    alignas(32) float all[kTileRows * kColumns];
    kMultiply[rows.size - 1](a, b, rows.count, all, kColumns, Write::plain);
    for (int64_t r = 0; r < rows.size; ++r)
      for (int64_t c = 0; c < there; ++c)
        to[r * stride + c] = how == Write::add ? to[r * stride + c] + all[r * kColumns + c] : all[r * kColumns + c];
  }
};

// Calls use(piece) for pieces of at most `most` of [begin, end).
template <class Use>
DRIVETRAIN_INLINE void for_pieces(int64_t begin, int64_t end, int64_t most, int64_t k, int64_t count, const Use& use) {
  for (int64_t at = begin; at < end; at += most) use(Piece{at, std::min(most, end - at), k, count});
}

// A tile with all panels of a block.
void add_panels(const Piece& tile, const float* a, const Piece& block, const float* b, const Sums& sums) {
  for_pieces(block.first, block.first + block.size, kColumns, block.k, block.count,
             [&](const Piece& panel) { sums.add(tile, a, panel, b + (panel.first - block.first) * block.count); });
}

// A weight that is larger than C: a few of its panels are packed once, and used for all rows.
template <class T>
void panel_by_panel(const GroupProduct& op, const Piece& rows, const float* a, float* b, const Sums& sums) {
  const int64_t most = op.b_transposed ? kColumns : kStrip, tiles = blocks_of(rows.size, kTileRows);
  for_pieces(0, op.n, most, rows.k, rows.count, [&](const Piece& block) {
    pack_b<T>(op, block, b);
    const int64_t behind = block.first + block.size;
    const Piece next{behind, std::min(most, op.n - behind), rows.k, rows.count};
    for_pieces(rows.first, rows.first + rows.size, kTileRows, rows.k, rows.count, [&](const Piece& tile) {
      if (next.size > 0) fetch<T>(op, next, (tile.first - rows.first) / kTileRows, tiles);
      add_panels(tile, a + (tile.first - rows.first) * rows.count, block, b, sums);
    });
  });
}

// A C that is larger than B: it is written by rows, since its columns lie far from each other.
template <class T>
void row_by_row(const GroupProduct& op, const Piece& rows, const float* a, float* b, const Sums& sums) {
  const int64_t most = std::max<int64_t>(kColumns, kPackedB / rows.count / kColumns * kColumns);
  for_pieces(0, op.n, most, rows.k, rows.count, [&](const Piece& block) {
    pack_b<T>(op, block, b);
    for_pieces(rows.first, rows.first + rows.size, kTileRows, rows.k, rows.count, [&](const Piece& tile) {
      add_panels(tile, a + (tile.first - rows.first) * rows.count, block, b, sums);
    });
  });
}

bool streams(const GroupProduct& op) {
  return op.stream && !op.add && op.k <= kSummands && op.c_stride % 8 == 0 &&
         reinterpret_cast<uintptr_t>(op.c) % 32 == 0;
}

// C, or the sums that become C.
template <class T>
void multiply_all(const GroupProduct& op, float* a, float* b, float* c, int64_t stride, int64_t columns, bool add) {
  for (int64_t k = 0; k < op.k; k += kSummands) {
    const int64_t count = std::min(kSummands, op.k - k);
    const Write how = add || k > 0 ? Write::add : streams(op) ? Write::past_caches : Write::plain;
    const Sums sums{c, stride, columns, how};
    for_pieces(0, op.m, kPackedA / count / kTileRows * kTileRows, k, count, [&](const Piece& rows) {
      for_pieces(rows.first, rows.first + rows.size, kTileRows, k, count,
                 [&](const Piece& tile) { pack_a<T>(op, tile, a + (tile.first - rows.first) * count); });
      op.m > op.k ? row_by_row<T>(op, rows, a, b, sums) : panel_by_panel<T>(op, rows, a, b, sums);
    });
  }
  if (streams(op)) _mm_sfence();
}

template <class T>
void round_sums(const GroupProduct& op, const float* sums, int64_t stride) {
  for (int64_t i = 0; i < op.m; ++i) {
    T* const to = static_cast<T*>(op.c) + i * op.c_stride;
    for (int64_t j = 0; j < op.n; ++j)
      to[j] = narrowed<T>(op.add ? widened(to[j]) + sums[i * stride + j] : sums[i * stride + j]);
  }
}

}  // namespace

bool multiplies_groups() {
  static const bool can =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && !__builtin_cpu_supports("avx512f");
  return can;
}

int64_t group_product_scratch_bytes(const GroupProduct& op) {
  const int64_t sums = op.c_dtype == Dtype::f32 ? 0 : op.m * rounded_up(op.n, kColumns);
  return 4 * (kPackedA + kPackedB + sums);
}

void group_product_cpu(const GroupProduct& op, void* scratch) {
  float *const a = static_cast<float*>(scratch), *const b = a + kPackedA, *const sums = b + kPackedB;
  const int64_t stride = rounded_up(op.n, kColumns);
  with_elements(op.dtype, [&]<class T>(T) {
    if (op.c_dtype == Dtype::f32)
      multiply_all<T>(op, a, b, static_cast<float*>(op.c), op.c_stride, op.n, op.add);
    else
      multiply_all<T>(op, a, b, sums, stride, stride, false);
  });
  if (op.c_dtype != Dtype::f32) with_elements(op.c_dtype, [&]<class T>(T) { round_sums<T>(op, sums, stride); });
}

}  // namespace drivetrain::kernels

#else

namespace drivetrain::kernels {

bool multiplies_groups() { return false; }
int64_t group_product_scratch_bytes(const GroupProduct&) { return 0; }
void group_product_cpu(const GroupProduct&, void*) {}

}  // namespace drivetrain::kernels
#endif
