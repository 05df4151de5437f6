// What happens to blocks of 64 queries by 64 keys between two products, and how heads become operands of them. Source
// files of kernels/attention include it. Blocks of float32 lie as kernels/product leaves them: 64 rows of 64, one block
// behind the other; probabilities become the A operand of the next product: panels of 32 rows, a tile pair per 32
// columns (kernels/product/tiles.h).
#pragma once

#include "kernels/attention/flash.h"
#include "kernels/product/tiles.h"

namespace drivetrain::kernels {

inline constexpr int64_t kSide = kBlockSide;                            // queries and keys of a block
inline constexpr int64_t kPanels = kSide / kPanel;                      // of a block's side
inline constexpr int64_t kBlockBytes = kPanels * kPanels * kPairBytes;  // of a block of bfloat16
inline constexpr float kLog2Of_e = 1.44269504F, kLogOf_2 = 0.693147181F;

// Rows that a query head, or a key head, has from `position` on.
struct FlashRows {
  const uint16_t* data;
  int64_t stride;  // elements between positions
  int64_t count;   // positions that there are
};
inline FlashRows rows_of(const FlashHeads& x, int64_t b, int64_t position, int64_t head, int64_t positions) {
  return {x.data + b * x.batch_stride + position * x.position_stride + head * x.head_stride, x.position_stride,
          positions - position};
}

// The keys that a query sees are from first_key to end_key - 1, of those that there are; both grow with the query.
inline constexpr int64_t kFarAway = int64_t{1} << 60;
inline int64_t first_key(const FlashAttention& op, int64_t query) {
  return op.window > 0 ? query + op.offset - op.window + 1 : -kFarAway;
}
inline int64_t end_key(const FlashAttention& op, int64_t query) {
  return op.causal ? query + op.offset + 1 : op.window > 0 ? query + op.offset + op.window : kFarAway;
}

// 32 rows as tile pairs along D, `to_next` bytes from each to the next one; what is beyond their ends is zero.
using PackPair = void (*)(const uint16_t* rows, int64_t stride, char* pair);
void pack_rows(PackPair pack, const FlashRows& rows, int64_t head_size, char* to, int64_t to_next);

// c [64, 64] := or += a b. A and B have two panels, `a_panel` and `b_panel` bytes apart.
struct BlockProduct {
  PieceProduct piece;
  const char *a, *b;
  int64_t a_panel, b_panel, pairs;
  int64_t columns = kPanels;  // panels of B that there are
};
inline void multiply(const BlockProduct& p, float* c, bool add) {
  for (int64_t i = 0; i < kPanels; ++i)
    for (int64_t j = 0; j < p.columns; ++j)
      p.piece(p.a + i * p.a_panel, p.b + j * p.b_panel, p.pairs, c + i * kPanel * kSide + j * kPanel, add);
}

inline PieceProduct piece_of(ProductUnit unit) { return unit == ProductUnit::amx ? piece_by_amx : piece_by_avx512; }

// A thread's memory, handed out part by part. At null it counts what is wanted.
class Scratch {
 public:
  explicit Scratch(void* memory) : begin_(reinterpret_cast<uintptr_t>(memory)) {}
  template <class T>
  T* room(int64_t bytes) {
    const uintptr_t at = begin_ + static_cast<uintptr_t>(used_);
    used_ += bytes;
    return reinterpret_cast<T*>(at);
  }
  int64_t used() const { return used_; }

 private:
  const uintptr_t begin_;
  int64_t used_ = 0;
};

// One step of the softmax over keys, for 64 queries and `blocks` blocks of scores.
struct SoftmaxStep {
  const float* scores;
  int64_t blocks;
  int64_t keys;   // columns that are keys
  int64_t begin;  // row r sees columns from begin + r on
  int64_t end;    // and below end + r
  float scale;    // of the scores, times log2 e
  float* maxima;  // [64], of scores in base 2, so far
  float* sums;    // [64, 16], of probabilities, so far
  float* shrink;  // [64]: what was summed before is to be multiplied by this
  char* out;      // probabilities as A
  int64_t panel;  // bytes from panel to panel of `out`
};
void softmax_step(const SoftmaxStep& step);
// x [64, 64] := tanh(x * factor), `blocks` of them.
void tanh_of_blocks(float* x, int64_t blocks, float factor);
// x [64, 64] *= factors [64], row by row.
void scale_rows(float* x, const float* factors);

// Backward's middle, for 64 keys (rows) by 64 queries (columns).
struct GradStep {
  const float *scores, *dprobabilities;
  int64_t keys;                   // rows that are keys
  int64_t begin;                  // row r is seen from column begin + r on
  int64_t end;                    // and below end + r
  bool capped;                    // the scores are tanh of what they were
  float scale;                    // of the scores, times log2 e
  const float *lse, *delta;       // [64]: in base 2; sum of dout out
  char *probabilities, *dscores;  // as A
};
void grad_step(const GradStep& step);

// [rows, columns] := x [64, 64] * factors[row], or * factor where `factors` is null; rows `stride` elements apart.
struct RowsEnd {
  const float* x;
  const float* factors;
  float factor;
  int64_t rows, columns, stride;
};
void write_rows(const RowsEnd& end, uint16_t* to);
void write_rows(const RowsEnd& end, float* to);

float dot_row(const uint16_t* a, const uint16_t* b, int64_t n);
float sum_of_lanes(const float* lanes);  // 16

}  // namespace drivetrain::kernels
