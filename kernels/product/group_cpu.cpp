// A is packed in tiles of a few rows, B in panels of a few columns, as group_tile.h multiplies them (`Tile`).
#include "kernels/product/group.h"

#include <algorithm>

#include "kernels/common/narrow.h"
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

// A panel of so many summands and a tile are 22 KB by AVX2, and 44 KB by AVX512, whose processors have first caches of
// 32 or 48 KB.
constexpr int64_t kSummands = kGroupSummands;

int64_t rounded_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }
constexpr int64_t kMostColumns = WideTile::kColumns;

// Rows [first, first + rows) of A, columns alike of B; summands [k, k + count).
struct Piece {
  int64_t first, size, k, count;
};

template <class T>
DRIVETRAIN_INLINE const T* stored_row(const void* data, int64_t stride, const int64_t* rows, int64_t row) {
  return static_cast<const T*>(data) + (rows ? rows[row] : row) * stride;
}

// [count][Tile::kRows]. Rows that a tile lacks are left as they are: nobody reads them.
template <class Tile, class T>
void pack_a(const GroupProduct& op, const Piece& p, float* out) {
  if (op.a_transposed) {
    for (int64_t k = 0; k < p.count; ++k) {
      const T* const from = stored_row<T>(op.a, op.a_stride, op.a_rows, p.k + k) + p.first;
      for (int64_t r = 0; r < p.size; ++r) out[k * Tile::kRows + r] = widened(from[r]);
    }
    return;
  }
  for (int64_t r = 0; r < p.size; ++r) {
    const T* const from = stored_row<T>(op.a, op.a_stride, op.a_rows, p.first + r) + p.k;
    for (int64_t k = 0; k < p.count; ++k) out[k * Tile::kRows + r] = widened(from[k]);
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
template <int64_t Columns, class T>
DRIVETRAIN_INLINE void turn_four(const T* const (&rows)[4], int64_t k, float* out) {
  const __m128 r0 = four(rows[0] + k), r1 = four(rows[1] + k), r2 = four(rows[2] + k), r3 = four(rows[3] + k);
  const __m128 low0 = _mm_unpacklo_ps(r0, r1), high0 = _mm_unpackhi_ps(r0, r1), low1 = _mm_unpacklo_ps(r2, r3),
               high1 = _mm_unpackhi_ps(r2, r3);
  _mm_store_ps(out, _mm_movelh_ps(low0, low1));
  _mm_store_ps(out + Columns, _mm_movehl_ps(low1, low0));
  _mm_store_ps(out + 2 * Columns, _mm_movelh_ps(high0, high1));
  _mm_store_ps(out + 3 * Columns, _mm_movehl_ps(high1, high0));
}

// Of a whole panel, whose columns are rows of what is stored.
template <class Tile, class T>
void turn_columns(const GroupProduct& op, const Piece& p, float* out) {
  for (int64_t c = 0; c < Tile::kColumns; c += 4) {
    const T* rows[4];
    for (int64_t i = 0; i < 4; ++i) rows[i] = stored_row<T>(op.b, op.b_stride, op.b_rows, p.first + c + i) + p.k;
    int64_t k = 0;
    for (; k + 4 <= p.count; k += 4) turn_four<Tile::kColumns>(rows, k, out + k * Tile::kColumns + c);
    for (; k < p.count; ++k)
      for (int64_t i = 0; i < 4; ++i) out[k * Tile::kColumns + c + i] = widened(rows[i][k]);
  }
}

// A panel that is not whole: columns that it lacks are zeros.
template <class Tile, class T>
void pack_rest(const GroupProduct& op, const Piece& p, float* out) {
  std::fill_n(out, p.count * Tile::kColumns, 0.0F);
  for (int64_t k = 0; k < p.count; ++k)
    for (int64_t c = 0; c < p.size; ++c)
      out[k * Tile::kColumns + c] =
          widened(op.b_transposed ? stored_row<T>(op.b, op.b_stride, op.b_rows, p.first + c)[p.k + k]
                                  : stored_row<T>(op.b, op.b_stride, op.b_rows, p.k + k)[p.first + c]);
}

// Panels [count][Tile::kColumns] one after another. Rows of B lie far from each other, so each is read once for all
// panels.
template <class Tile, class T>
void pack_b(const GroupProduct& op, const Piece& p, float* out) {
  const int64_t whole = p.size / Tile::kColumns * Tile::kColumns;
  if (whole < p.size) pack_rest<Tile, T>(op, {p.first + whole, p.size - whole, p.k, p.count}, out + whole * p.count);
  if (op.b_transposed) {
    for (int64_t c = 0; c < whole; c += Tile::kColumns)
      turn_columns<Tile, T>(op, {p.first + c, Tile::kColumns, p.k, p.count}, out + c * p.count);
    return;
  }
  for (int64_t k = 0; k < p.count; ++k) {
    const T* const from = stored_row<T>(op.b, op.b_stride, op.b_rows, p.k + k) + p.first;
    for (int64_t c = 0; c < whole; c += 4)
      _mm_store_ps(out + c / Tile::kColumns * Tile::kColumns * p.count + k * Tile::kColumns + c % Tile::kColumns,
                   four(from + c));
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

// Where sums go: C itself, or float32 beside it, whose rows are whole panels.
template <class Tile>
struct Sums {
  float* data;
  int64_t stride, columns;
  Write how;

  void add(const Piece& rows, const float* a, const Piece& columns_of, const float* b) const {
    float* const to = data + rows.first * stride + columns_of.first;
    const int64_t there = std::min<int64_t>(Tile::kColumns, columns - columns_of.first);
    if (there == Tile::kColumns) return Tile::multiply()[rows.size - 1](a, b, rows.count, to, stride, how);
    alignas(64) float all[Tile::kRows * Tile::kColumns];
    Tile::multiply()[rows.size - 1](a, b, rows.count, all, Tile::kColumns, Write::plain);
    for (int64_t r = 0; r < rows.size; ++r)
      for (int64_t c = 0; c < there; ++c)
        to[r * stride + c] =
            how == Write::add ? to[r * stride + c] + all[r * Tile::kColumns + c] : all[r * Tile::kColumns + c];
  }
};

// Calls use(piece) for pieces of at most `most` of [begin, end).
template <class Use>
DRIVETRAIN_INLINE void for_pieces(int64_t begin, int64_t end, int64_t most, int64_t k, int64_t count, const Use& use) {
  for (int64_t at = begin; at < end; at += most) use(Piece{at, std::min(most, end - at), k, count});
}

// A tile with all panels of a block.
template <class Tile>
void add_panels(const Piece& tile, const float* a, const Piece& block, const float* b, const Sums<Tile>& sums) {
  for_pieces(block.first, block.first + block.size, Tile::kColumns, block.k, block.count,
             [&](const Piece& panel) { sums.add(tile, a, panel, b + (panel.first - block.first) * block.count); });
}

// A weight that is larger than C: a few of its panels are packed once, and used for all rows.
template <class Tile, class T>
void panel_by_panel(const GroupProduct& op, const Piece& rows, const float* a, float* b, const Sums<Tile>& sums) {
  const int64_t most = op.b_transposed ? Tile::kColumns : Tile::kStrip, tiles = blocks_of(rows.size, Tile::kRows);
  for_pieces(0, op.n, most, rows.k, rows.count, [&](const Piece& block) {
    pack_b<Tile, T>(op, block, b);
    const int64_t behind = block.first + block.size;
    const Piece next{behind, std::min(most, op.n - behind), rows.k, rows.count};
    for_pieces(rows.first, rows.first + rows.size, Tile::kRows, rows.k, rows.count, [&](const Piece& tile) {
      if (next.size > 0) fetch<T>(op, next, (tile.first - rows.first) / Tile::kRows, tiles);
      add_panels(tile, a + (tile.first - rows.first) * rows.count, block, b, sums);
    });
  });
}

// A C that is larger than B: it is written by rows, since its columns lie far from each other.
template <class Tile, class T>
void row_by_row(const GroupProduct& op, const Piece& rows, const float* a, float* b, const Sums<Tile>& sums) {
  const int64_t most = std::max<int64_t>(Tile::kColumns, Tile::kPackedB / rows.count / Tile::kColumns * Tile::kColumns);
  for_pieces(0, op.n, most, rows.k, rows.count, [&](const Piece& block) {
    pack_b<Tile, T>(op, block, b);
    for_pieces(rows.first, rows.first + rows.size, Tile::kRows, rows.k, rows.count, [&](const Piece& tile) {
      add_panels(tile, a + (tile.first - rows.first) * rows.count, block, b, sums);
    });
  });
}

bool streams(const GroupProduct& op) {
  return op.stream && !op.add && op.c_dtype == Dtype::f32 && op.k <= kSummands && op.c_stride % 16 == 0 &&
         reinterpret_cast<uintptr_t>(op.c) % 64 == 0;
}

// All summands of a few columns before the next columns: a weight whose rows are columns of B is then read in whole
// rows. For rows of A that are packed together.
template <class Tile, class T>
void column_by_column(const GroupProduct& op, float* a, float* b, const Sums<Tile>& first, const Sums<Tile>& others) {
  const int64_t tiles = blocks_of(op.m, Tile::kRows);
  const auto packed = [&](int64_t k, const Piece& tile) {
    return a + k * tiles * Tile::kRows + tile.first * tile.count;
  };
  const auto for_tiles = [&](int64_t k, const auto& use) {
    for_pieces(0, op.m, Tile::kRows, k, std::min(kSummands, op.k - k), use);
  };
  for (int64_t k = 0; k < op.k; k += kSummands)
    for_tiles(k, [&](const Piece& tile) { pack_a<Tile, T>(op, tile, packed(k, tile)); });
  const auto panel_of = [&](int64_t column, int64_t k) {
    return Piece{column, std::min(Tile::kColumns, op.n - column), k, std::min(kSummands, op.k - k)};
  };
  for (int64_t column = 0; column < op.n; column += Tile::kColumns)
    for (int64_t k = 0; k < op.k; k += kSummands) {
      const Piece panel = panel_of(column, k);
      const bool more = k + kSummands < op.k;
      const Piece next = more ? panel_of(column, k + kSummands) : panel_of(column + Tile::kColumns, 0);
      pack_b<Tile, T>(op, panel, b);
      for_tiles(k, [&](const Piece& tile) {
        if (next.size > 0) fetch<T>(op, next, tile.first / Tile::kRows, tiles);
        (k == 0 ? first : others).add(tile, packed(k, tile), panel, b);
      });
    }
}

// C, or the sums that become C.
template <class Tile, class T>
void multiply_all(const GroupProduct& op, float* a, float* b, float* c, int64_t stride, int64_t columns, bool add) {
  const Write first = add ? Write::add : streams(op) ? Write::past_caches : Write::plain;
  const Sums<Tile> begun{c, stride, columns, first}, others{c, stride, columns, Write::add};
  if (op.b_transposed && op.m > 0 && op.m <= op.k && rounded_up(op.m, Tile::kRows) * op.k <= Tile::kPackedA) {
    column_by_column<Tile, T>(op, a, b, begun, others);
    return streams(op) ? _mm_sfence() : void();
  }
  for (int64_t k = 0; k < op.k; k += kSummands) {
    const int64_t count = std::min(kSummands, op.k - k);
    const Sums<Tile>& sums = k == 0 ? begun : others;
    for_pieces(0, op.m, Tile::kPackedA / count / Tile::kRows * Tile::kRows, k, count, [&](const Piece& rows) {
      for_pieces(rows.first, rows.first + rows.size, Tile::kRows, k, count,
                 [&](const Piece& tile) { pack_a<Tile, T>(op, tile, a + (tile.first - rows.first) * count); });
      op.m > op.k ? row_by_row<Tile, T>(op, rows, a, b, sums) : panel_by_panel<Tile, T>(op, rows, a, b, sums);
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
  static const bool can = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return can;
}

bool multiplies_groups_wide() {
  static const bool can = multiplies_groups() && __builtin_cpu_supports("avx512f");
  return can;
}

int64_t group_product_scratch_bytes(const GroupProduct& op) {
  const int64_t sums = op.c_dtype == Dtype::f32 ? 0 : op.m * rounded_up(op.n, kMostColumns);
  return 4 * (WideTile::kPackedA + WideTile::kPackedB + sums);
}

template <class Tile>
static void product_by(const GroupProduct& op, void* scratch) {
  float *const a = static_cast<float*>(scratch), *const b = a + Tile::kPackedA, *const sums = b + Tile::kPackedB;
  const int64_t stride = rounded_up(op.n, kMostColumns);
  with_elements(op.dtype, [&]<class T>(T) {
    if (op.c_dtype == Dtype::f32)
      multiply_all<Tile, T>(op, a, b, static_cast<float*>(op.c), op.c_stride, op.n, op.add);
    else
      multiply_all<Tile, T>(op, a, b, sums, stride, stride, false);
  });
  if (op.c_dtype != Dtype::f32) with_elements(op.c_dtype, [&]<class T>(T) { round_sums<T>(op, sums, stride); });
}

void group_product_cpu(const GroupProduct& op, void* scratch) {
  op.narrow || !multiplies_groups_wide() ? product_by<NarrowTile>(op, scratch) : product_by<WideTile>(op, scratch);
}

}  // namespace drivetrain::kernels

#else

namespace drivetrain::kernels {

bool multiplies_groups() { return false; }
bool multiplies_groups_wide() { return false; }
int64_t group_product_scratch_bytes(const GroupProduct&) { return 0; }
void group_product_cpu(const GroupProduct&, void*) {}

}  // namespace drivetrain::kernels
#endif
