// Pieces of 32 x 32 of a result: their sums by the instructions of tiles_cpu.cpp, then what becomes of them.
#include "kernels/product/tiled.h"

#include <cstring>

#include "kernels/common/narrow.h"
#include "kernels/product/tiles.h"

#ifdef __x86_64__
#include <immintrin.h>

// GCC 12 takes the undefined inputs of its own intrinsics for mistakes.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
// The processor is asked before anything of this is called (product_unit).
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

namespace drivetrain::kernels {
namespace {

constexpr int64_t kSide = 2;    // pieces along a side of a block of C
constexpr int64_t kStride = 8;  // pieces of k between two visits of a piece of the block

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t panels_of(int64_t size) { return blocks_of(size, kPanel); }

uint16_t* piece_at(void* tiles, int64_t row, int64_t column, int64_t columns) {
  return static_cast<uint16_t*>(tiles) + (row * columns + column) * kPanel * kPanel;
}
const uint16_t* piece_at(const void* tiles, int64_t row, int64_t column, int64_t columns) {
  return static_cast<const uint16_t*>(tiles) + (row * columns + column) * kPanel * kPanel;
}
char* bytes_of(uint16_t* piece) { return reinterpret_cast<char*>(piece); }
const char* bytes_of(const uint16_t* piece) { return reinterpret_cast<const char*>(piece); }

__m512 widened_row(const uint16_t* x) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

void store_row(uint16_t* row, __m512 left, __m512 right) {
  _mm512_store_si512(row, (__m512i)_mm512_cvtne2ps_pbh(right, left));
}

// 32 x 32 dense elements to plain memory, those that there are.
void write_window(const uint16_t* from, uint16_t* to, int64_t stride, int64_t rows, int64_t columns) {
  const auto some = static_cast<__mmask32>(columns >= kPanel ? 0xFFFFFFFFU : (1U << columns) - 1);
  for (int64_t r = 0; r < smaller(rows, kPanel); ++r)
    _mm512_mask_storeu_epi16(to + r * stride, some, _mm512_load_si512(from + r * kPanel));
}

// What of 32 x 32 elements of plain memory there is, times factor and rounded, else zeros.
void read_window(const uint16_t* from, int64_t stride, int64_t rows, int64_t columns, float factor, uint16_t* to) {
  const auto some = static_cast<__mmask32>(columns >= kPanel ? 0xFFFFFFFFU : (1U << columns) - 1);
  const __m512 by = _mm512_set1_ps(factor);
  for (int64_t r = 0; r < kPanel; ++r) {
    alignas(64) uint16_t row[kPanel];
    _mm512_store_si512(row, r < rows ? _mm512_maskz_loadu_epi16(some, from + r * stride) : _mm512_setzero_si512());
    store_row(to + r * kPanel, _mm512_mul_ps(widened_row(row), by), _mm512_mul_ps(widened_row(row + 16), by));
  }
}

// Below the diagonal of 32 x 32 elements what is above it.
void mirror_within(uint16_t* rows) {
  alignas(64) uint16_t turned[kPanel * kPanel];
  pack_a_transposed(rows, kPanel, reinterpret_cast<char*>(turned));
  for (int64_t r = 1; r < kPanel; ++r) {
    const auto below = static_cast<__mmask32>((1U << r) - 1);
    _mm512_mask_storeu_epi16(rows + r * kPanel, below, _mm512_load_si512(turned + r * kPanel));
  }
}

// Two neighbouring columns of pieces of C, from the top to the bottom.
class Task {
 public:
  Task(const TiledProduct& op, void* scratch)
      : op_(op),
        m_(panels_of(op.m)),
        n_(panels_of(op.n)),
        k_(panels_of(op.k)),
        pairs_(op.k_end - op.k_begin),
        packed_(static_cast<char*>(scratch)),
        own_sums_(reinterpret_cast<float*>(packed_ + kSide * pairs_ * kPairBytes)),
        multiply_(op.unit == ProductUnit::amx ? piece_by_amx : piece_by_avx512) {}

  void run(int64_t column) {
    const int64_t columns = smaller(column + kSide, n_), rows = op_.symmetric ? columns : m_;
    for (int64_t j = column; j < columns; ++j) pack(j, packed_ + (j - column) * pairs_ * kPairBytes);
    for (int64_t row = 0; row < rows; row += kSide) {
      float* const sums = op_.sums ? static_cast<float*>(op_.sums) + block(row, column) * kBlockFloats : own_sums_;
      add_products(row, column, sums);
      if (op_.k_end == k_)
        each_piece(row, column, [&](int64_t i, int64_t j) { finish(i, j, sums_of(sums, i - row, j - column)); });
    }
  }

 private:
  int64_t block(int64_t row, int64_t column) const { return column / kSide * blocks_of(m_, kSide) + row / kSide; }
  static float* sums_of(float* sums, int64_t i, int64_t j) { return sums + i * kPanel * kBlockSide + j * kPanel; }

  // Those that are computed of the block from piece (row, column) on.
  template <class F>
  void each_piece(int64_t row, int64_t column, const F& f) const {
    for (int64_t i = row; i < smaller(row + kSide, m_); ++i)
      for (int64_t j = column; j < smaller(column + kSide, n_); ++j)
        if (!op_.symmetric || i <= j) f(i, j);
  }

  void pack(int64_t j, char* to) const {
    for (int64_t k = op_.k_begin; k < op_.k_end; ++k, to += kPairBytes)
      op_.b_transposed ? pack_b_transposed(piece_at(op_.b, j, k, k_), kPanel, to)
                       : pack_b(piece_at(op_.b, k, j, n_), kPanel, to);
  }

  void add_products(int64_t row, int64_t column, float* sums) const {
    for (int64_t at = 0; at < pairs_; at += kStride)
      each_piece(row, column, [&](int64_t i, int64_t j) {
        multiply_(bytes_of(piece_at(op_.a, i, op_.k_begin + at, k_)),
                  packed_ + ((j - column) * pairs_ + at) * kPairBytes, smaller(kStride, pairs_ - at),
                  sums_of(sums, i - row, j - column), op_.k_begin + at > 0);
      });
  }

  void finish(int64_t i, int64_t j, const float* sums) const {
    alignas(64) uint16_t plain[kPanel * kPanel];
    uint16_t* const piece = op_.tiles ? piece_at(op_.tiles, i, j, n_) : plain;
    round(sums, i, j, piece);
    if (op_.symmetric && i == j) mirror_within(piece);
    if (op_.symmetric && i != j) pack_a_transposed(piece, kPanel, bytes_of(piece_at(op_.tiles, j, i, n_)));
    if (op_.c) write_plain(piece, i, j);
  }

  void round(const float* sums, int64_t i, int64_t j, uint16_t* to) const {
    const uint16_t* s = op_.summand ? piece_at(op_.summand, i, j, n_) : nullptr;
    const __m512 of_product = _mm512_set1_ps(op_.of_product), of_summand = _mm512_set1_ps(op_.of_summand);
    for (int64_t r = 0; r < kPanel; ++r, sums += kBlockSide, to += kPanel) {
      __m512 left = _mm512_mul_ps(_mm512_load_ps(sums), of_product);
      __m512 right = _mm512_mul_ps(_mm512_load_ps(sums + 16), of_product);
      if (s) {
        left = _mm512_fmadd_ps(widened_row(s + r * kPanel), of_summand, left);
        right = _mm512_fmadd_ps(widened_row(s + r * kPanel + 16), of_summand, right);
      }
      store_row(to, left, right);
    }
  }

  void write_plain(const uint16_t* piece, int64_t i, int64_t j) const {
    uint16_t* const c = static_cast<uint16_t*>(op_.c);
    const int64_t row = i * kPanel, column = j * kPanel;
    if (!op_.c_transposed) {
      write_window(piece, c + row * op_.c_stride + column, op_.c_stride, op_.m - row, op_.n - column);
      return;
    }
    alignas(64) uint16_t turned[kPanel * kPanel];
    pack_a_transposed(piece, kPanel, bytes_of(turned));
    write_window(turned, c + column * op_.c_stride + row, op_.c_stride, op_.n - column, op_.m - row);
  }

  const TiledProduct& op_;
  const int64_t m_, n_, k_, pairs_;  // in pieces
  char* const packed_;               // both columns of B
  float* const own_sums_;            // of one block, where the whole of K comes at once
  const PieceProduct multiply_;
};

}  // namespace

int64_t tiled_pieces(int64_t size) { return panels_of(size); }
int64_t tiled_bytes(int64_t rows, int64_t columns) { return panels_of(rows) * panels_of(columns) * kPairBytes; }

int64_t tiled_panels(const TiledPack& op) { return panels_of(op.rows); }

void tiled_pack_cpu(const TiledPack& op, int64_t panel_begin, int64_t panel_end) {
  const int64_t columns = panels_of(op.columns);
  const uint16_t* const x = static_cast<const uint16_t*>(op.x);
  alignas(64) uint16_t window[kPanel * kPanel];
  for (int64_t i = panel_begin; i < panel_end; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t row = i * kPanel, column = j * kPanel;
      uint16_t* const piece = piece_at(op.tiles, i, j, columns);
      if (op.transposed) {
        read_window(x + column * op.stride + row, op.stride, op.columns - column, op.rows - row, op.factor, window);
        pack_a_transposed(window, kPanel, bytes_of(piece));
      } else {
        read_window(x + row * op.stride + column, op.stride, op.rows - row, op.columns - column, op.factor, piece);
      }
    }
}

int64_t tiled_sum_bytes(const TiledProduct& op) {
  return blocks_of(panels_of(op.m), kSide) * blocks_of(panels_of(op.n), kSide) * kBlockFloats * 4;
}

int64_t tiled_scratch_bytes(const TiledProduct& op) {
  return kSide * (op.k_end - op.k_begin) * kPairBytes + kBlockFloats * 4;
}

int64_t tiled_tasks(const TiledProduct& op) { return blocks_of(panels_of(op.n), kSide); }

void tiled_product_cpu(const TiledProduct& op, void* scratch, int64_t task_begin, int64_t task_end) {
  const TileSetup tiles(op.unit == ProductUnit::amx);
  Task task(op, scratch);
  const int64_t last = tiled_tasks(op) - 1;
  // Columns of a symmetric result are of different length: a long one follows a short one, so that any half has half.
  for (int64_t t = task_begin; t < task_end; ++t)
    task.run((!op.symmetric ? t : t % 2 == 0 ? t / 2 : last - t / 2) * kSide);
}

void tiled_add_to_diagonal(void* tiles, int64_t size, float value) {
  const int64_t panels = panels_of(size);
  for (int64_t i = 0; i < size; ++i) {
    uint16_t& element = piece_at(tiles, i / kPanel, i / kPanel, panels)[i % kPanel * (kPanel + 1)];
    element = to_bf16(widened(Bf16{element}) + value);
  }
}

}  // namespace drivetrain::kernels

#else  // not x86-64: nothing of this is called

namespace drivetrain::kernels {

int64_t tiled_pieces(int64_t) { return 0; }
int64_t tiled_bytes(int64_t, int64_t) { return 0; }
int64_t tiled_panels(const TiledPack&) { return 0; }
int64_t tiled_sum_bytes(const TiledProduct&) { return 0; }
int64_t tiled_scratch_bytes(const TiledProduct&) { return 0; }
int64_t tiled_tasks(const TiledProduct&) { return 0; }
void tiled_pack_cpu(const TiledPack&, int64_t, int64_t) { __builtin_trap(); }
void tiled_product_cpu(const TiledProduct&, void*, int64_t, int64_t) { __builtin_trap(); }
void tiled_add_to_diagonal(void*, int64_t, float) { __builtin_trap(); }

}  // namespace drivetrain::kernels
#endif
