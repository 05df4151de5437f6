// How operands lie in packed memory, and the products of packed pieces. Source files of kernels/product include it.
//
// A tile pair holds 32 rows of A, or 32 columns of B, by 32 k: 2 KB.
//   A: [32 rows][32 k], as memory has it.
//   B: two tiles [16 pairs of k][16 columns][2], since the instructions multiply pairs of neighbouring k.
// A panel is its tile pairs in order of k. Pieces of 32 x 32 of C lie in blocks of 64 x 64 float32.
#pragma once

#include <cstdint>

namespace drivetrain::kernels {

inline constexpr int64_t kPanel = 32;        // rows of A, columns of B, and k of a tile pair
inline constexpr int64_t kPairBytes = 2048;  // of a tile pair
inline constexpr int64_t kBlockSide = 64;    // of a block of C
inline constexpr int64_t kBlockFloats = kBlockSide * kBlockSide;

// c [32, 32] with rows kBlockSide apart := or += the product of `pairs` tile pairs.
using PieceProduct = void (*)(const char* a, const char* b, int64_t pairs, float* c, bool add);
void piece_by_amx(const char* a, const char* b, int64_t pairs, float* c, bool add);
void piece_by_avx512(const char* a, const char* b, int64_t pairs, float* c, bool add);

// The calling thread's tiles, set up for piece_by_amx as long as this lives; then what was there before.
class TileSetup {
 public:
  explicit TileSetup(bool used);
  ~TileSetup();
  TileSetup(const TileSetup&) = delete;
  TileSetup& operator=(const TileSetup&) = delete;

 private:
  alignas(64) char before_[64];
  const bool used_;
};

// One tile pair from 32 x 32 bfloat16 whose rows are `stride` elements apart.
void pack_a(const uint16_t* rows, int64_t stride, char* pair);             // rows are rows of A
void pack_a_transposed(const uint16_t* rows, int64_t stride, char* pair);  // rows are k
void pack_b(const uint16_t* rows, int64_t stride, char* pair);             // rows are k
void pack_b_transposed(const uint16_t* rows, int64_t stride, char* pair);  // rows are columns of B

// 32 x 32 float32 rounded to bfloat16, or with `low` what rounding leaves out of them, rounded; rows become dense.
void round_window(const float* rows, int64_t stride, bool low, uint16_t* to);

// The other way round: `to` has the rows of `sums` as columns.
void turn_block(const float* sums, float* to);

// What is written of a block of sums.
struct BlockEnd {
  const float* sums;
  int64_t rows, columns;  // at most kBlockSide
  const void* bias;       // [columns] of the type of c, or null
  void* c;
  int64_t c_stride;
};
void end_block_bf16(const BlockEnd& block);
void end_block_f32(const BlockEnd& block, bool add, bool stream);

}  // namespace drivetrain::kernels
