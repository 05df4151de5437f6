// The instructions behind kernels/product: AMX tiles, AVX512-BF16 and the shuffles that pack operands for both.
#include "kernels/product/tiles.h"

#include "kernels/product/product.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

// GCC 12 takes the undefined inputs of its own intrinsics for mistakes.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
// The processor is asked before anything of this is called (product_unit).
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16")

namespace drivetrain::kernels {
namespace {

constexpr int kTileRows = 16, kTileBytes = 64;  // per row

// The memory operand of ldtilecfg, palette 1.
struct TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

void load_config(const char (&config)[64]) { asm volatile("ldtilecfg %0" ::"m"(config)); }
void store_config(char (&config)[64]) { asm volatile("sttilecfg %0" : "=m"(config)); }

// Linux saves the 8 KB of tiles only for processes that ask.
bool may_use_tiles() {
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

ProductUnit find_unit() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
    return ProductUnit::none;
  if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || (a & 1U << 5) == 0) return ProductUnit::none;  // AVX512_BF16
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return ProductUnit::avx512_bf16;
  const bool tiles = (d & 1U << 22) != 0 && (d & 1U << 24) != 0;  // AMX_BF16, AMX_TILE
  return tiles && may_use_tiles() ? ProductUnit::amx : ProductUnit::avx512_bf16;
}

// 16 x 16 double words, the other way round; rows `stride` bytes apart become rows `step` bytes apart.
inline __attribute__((always_inline)) void transpose(const char* rows, int64_t stride, char* out, int64_t step = 64) {
  __m512i r[16], t[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(rows + i * stride);
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 4; ++i) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    _mm512_store_si512(out + i * step, _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88));
    _mm512_store_si512(out + (4 + i) * step, _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0x88));
    _mm512_store_si512(out + (8 + i) * step, _mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd));
    _mm512_store_si512(out + (12 + i) * step, _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0xdd));
  }
}

alignas(64) constexpr uint16_t kLowPairs[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
alignas(64) constexpr uint16_t kHighPairs[32] = {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
                                                 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63};

// Two rows of 32 become pairs of neighbours: 16 columns in the first tile, 16 in the second.
inline __attribute__((always_inline)) void pair_rows(const uint16_t* rows, int64_t stride, char* pair) {
  const __m512i low = _mm512_load_si512(kLowPairs), high = _mm512_load_si512(kHighPairs);
  for (int64_t r = 0; r < kTileRows; ++r) {
    const __m512i even = _mm512_loadu_si512(rows + 2 * r * stride),
                  odd = _mm512_loadu_si512(rows + (2 * r + 1) * stride);
    _mm512_store_si512(pair + r * kTileBytes, _mm512_permutex2var_epi16(even, low, odd));
    _mm512_store_si512(pair + (kTileRows + r) * kTileBytes, _mm512_permutex2var_epi16(even, high, odd));
  }
}

// Those of the next 16 elements that there are.
inline __attribute__((always_inline)) __mmask16 lanes(int64_t left) {
  return static_cast<__mmask16>(left >= 16 ? 0xFFFFU : (1U << left) - 1);
}

inline __attribute__((always_inline)) __m512 widened_lanes(__m256bh x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)x), 16));
}

inline __attribute__((always_inline)) __m512bh pairs_of(__m512i x) { return (__m512bh)x; }

// Eight rows of A against the 32 columns of B: 16 sums in registers.
inline __attribute__((always_inline)) void eight_rows(const char* a, const char* b, int64_t pairs, float* c, bool add) {
  constexpr int kRows = 8;
  __m512 left[kRows], right[kRows];
  for (int r = 0; r < kRows; ++r) {
    left[r] = add ? _mm512_load_ps(c + r * kBlockSide) : _mm512_setzero_ps();
    right[r] = add ? _mm512_load_ps(c + r * kBlockSide + 16) : _mm512_setzero_ps();
  }
  for (int64_t p = 0; p < pairs; ++p, a += kPairBytes, b += kPairBytes) {
    for (int k = 0; k < kTileRows; ++k) {
      const __m512bh b_left = pairs_of(_mm512_load_si512(b + k * kTileBytes));
      const __m512bh b_right = pairs_of(_mm512_load_si512(b + (kTileRows + k) * kTileBytes));
      for (int r = 0; r < kRows; ++r) {
        int both = 0;
        __builtin_memcpy(&both, a + r * kTileBytes + 4 * k, 4);
        const __m512bh of_row = pairs_of(_mm512_set1_epi32(both));
        left[r] = _mm512_dpbf16_ps(left[r], b_left, of_row);
        right[r] = _mm512_dpbf16_ps(right[r], b_right, of_row);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    _mm512_store_ps(c + r * kBlockSide, left[r]);
    _mm512_store_ps(c + r * kBlockSide + 16, right[r]);
  }
}

}  // namespace

ProductUnit product_unit() {
  static const ProductUnit unit = find_unit();
  return unit;
}

bool multiplies_float16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx512f") && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & 1U << 23) != 0;
}

void piece_by_amx(const char* a, const char* b, int64_t pairs, float* c, bool add) {
  constexpr int64_t kStride = kBlockSide * 4, kDown = 16 * kBlockSide;
  if (add) {
    _tile_loadd(0, c, kStride);
    _tile_loadd(1, c + 16, kStride);
    _tile_loadd(2, c + kDown, kStride);
    _tile_loadd(3, c + kDown + 16, kStride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t p = 0; p < pairs; ++p, a += kPairBytes, b += kPairBytes) {
    _tile_loadd(6, b, kTileBytes);
    _tile_loadd(4, a, kTileBytes);
    _tile_loadd(7, b + 1024, kTileBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a + 1024, kTileBytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, kStride);
  _tile_stored(1, c + 16, kStride);
  _tile_stored(2, c + kDown, kStride);
  _tile_stored(3, c + kDown + 16, kStride);
}

void piece_by_avx512(const char* a, const char* b, int64_t pairs, float* c, bool add) {
  for (int64_t row = 0; row < kPanel; row += 8) eight_rows(a + row * kTileBytes, b, pairs, c + row * kBlockSide, add);
}

// Other libraries of the process may have set tiles up for themselves and rely on them.
TileSetup::TileSetup(bool used) : used_(used) {
  if (!used_) return;
  store_config(before_);
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) config.row_bytes[tile] = kTileBytes, config.rows[tile] = kTileRows;
  char bytes[64];
  static_assert(sizeof(config) == sizeof(bytes));
  __builtin_memcpy(bytes, &config, sizeof(bytes));
  load_config(bytes);
}

TileSetup::~TileSetup() {
  if (!used_) return;
  if (before_[0] == 0)
    asm volatile("tilerelease");
  else
    load_config(before_);
}

void pack_a(const uint16_t* rows, int64_t stride, char* pair) {
  for (int64_t r = 0; r < kPanel; ++r) _mm512_store_si512(pair + r * kTileBytes, _mm512_loadu_si512(rows + r * stride));
}

void pack_a_transposed(const uint16_t* rows, int64_t stride, char* pair) {
  alignas(64) char between[kPairBytes];
  pair_rows(rows, stride, between);
  transpose(between, kTileBytes, pair);
  transpose(between + 1024, kTileBytes, pair + 1024);
}

void pack_b(const uint16_t* rows, int64_t stride, char* pair) { pair_rows(rows, stride, pair); }

void pack_b_transposed(const uint16_t* rows, int64_t stride, char* pair) {
  transpose(reinterpret_cast<const char*>(rows), 2 * stride, pair);
  transpose(reinterpret_cast<const char*>(rows + 16 * stride), 2 * stride, pair + 1024);
}

void round_window(const float* rows, int64_t stride, bool low, uint16_t* to) {
  for (int64_t r = 0; r < kPanel; ++r, rows += stride, to += kPanel) {
    __m512 left = _mm512_loadu_ps(rows), right = _mm512_loadu_ps(rows + 16);
    if (low) {
      left = _mm512_sub_ps(left, widened_lanes(_mm512_cvtneps_pbh(left)));
      right = _mm512_sub_ps(right, widened_lanes(_mm512_cvtneps_pbh(right)));
    }
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(right, left));
  }
}

void turn_block(const float* sums, float* to) {
  for (int64_t row = 0; row < kBlockSide; row += 16)
    for (int64_t column = 0; column < kBlockSide; column += 16)
      transpose(reinterpret_cast<const char*>(sums + row * kBlockSide + column), 4 * kBlockSide,
                reinterpret_cast<char*>(to + column * kBlockSide + row), 4 * kBlockSide);
}

void end_block_bf16(const BlockEnd& block) {
  for (int64_t i = 0; i < block.columns; i += 16) {
    const __mmask16 some = lanes(block.columns - i);
    __m512 bias = _mm512_setzero_ps();
    if (block.bias) {
      const __m256i bits = _mm256_maskz_loadu_epi16(some, static_cast<const uint16_t*>(block.bias) + i);
      bias = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
    }
    uint16_t* c = static_cast<uint16_t*>(block.c) + i;
    for (int64_t r = 0; r < block.rows; ++r, c += block.c_stride) {
      const __m512 sums = _mm512_add_ps(_mm512_load_ps(block.sums + r * kBlockSide + i), bias);
      _mm256_mask_storeu_epi16(c, some, (__m256i)_mm512_cvtneps_pbh(sums));
    }
  }
}

void end_block_f32(const BlockEnd& block, bool add, bool stream) {
  const bool past_caches = stream && !add && block.c_stride % 16 == 0 && reinterpret_cast<uintptr_t>(block.c) % 64 == 0;
  for (int64_t r = 0; r < block.rows; ++r) {
    float* const c = static_cast<float*>(block.c) + r * block.c_stride;
    for (int64_t i = 0; i < block.columns; i += 16) {
      const __mmask16 some = lanes(block.columns - i);
      __m512 sums = _mm512_load_ps(block.sums + r * kBlockSide + i);
      if (block.bias)
        sums = _mm512_add_ps(sums, _mm512_maskz_loadu_ps(some, static_cast<const float*>(block.bias) + i));
      if (add) sums = _mm512_add_ps(_mm512_maskz_loadu_ps(some, c + i), sums);
      if (past_caches && block.columns - i >= 16)
        _mm512_stream_ps(c + i, sums);
      else
        _mm512_mask_storeu_ps(c + i, some, sums);
    }
  }
}

}  // namespace drivetrain::kernels

#else  // not x86-64: nothing of this is called

namespace drivetrain::kernels {

ProductUnit product_unit() { return ProductUnit::none; }
bool multiplies_float16() { return false; }
void piece_by_amx(const char*, const char*, int64_t, float*, bool) { __builtin_trap(); }
void piece_by_avx512(const char*, const char*, int64_t, float*, bool) { __builtin_trap(); }
TileSetup::TileSetup(bool used) : used_(used) {}
TileSetup::~TileSetup() = default;
void pack_a(const uint16_t*, int64_t, char*) { __builtin_trap(); }
void pack_a_transposed(const uint16_t*, int64_t, char*) { __builtin_trap(); }
void pack_b(const uint16_t*, int64_t, char*) { __builtin_trap(); }
void pack_b_transposed(const uint16_t*, int64_t, char*) { __builtin_trap(); }
void round_window(const float*, int64_t, bool, uint16_t*) { __builtin_trap(); }
void turn_block(const float*, float*) { __builtin_trap(); }
void end_block_bf16(const BlockEnd&) { __builtin_trap(); }
void end_block_f32(const BlockEnd&, bool, bool) { __builtin_trap(); }

}  // namespace drivetrain::kernels

#endif
