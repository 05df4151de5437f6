// Backward: a task is a head. Blocks of keys one after the other, and for each the blocks of queries that see it; dq of
// the whole head is added up meanwhile. Scores are computed with keys as rows: they and their gradients are then the
// left operands of dv and dk as they are, and only dq's has to be transposed.
#include "kernels/attention/blocks.h"
#include "kernels/common/narrow.h"

namespace drivetrain::kernels {
namespace {

class Head {
 public:
  Head(const FlashBackward& op, void* scratch) : op_(op), piece_(piece_of(op.unit)), scratch_(scratch) {}

  static int64_t bytes(const FlashBackward& op) {
    Head head(op, nullptr);
    return head.scratch_.used();
  }

  void run(int64_t task) {
    b_ = task / op_.heads, h_ = task % op_.heads, g_ = h_ / (op_.heads / op_.groups);
    pack_queries();
    for (int64_t j = 0; j < blocks_of(op_.keys, kSide); ++j) {
      pack_keys(j * kSide);
      const int64_t first = first_block(j), end = end_block(j);
      for (int64_t i = first; i < end; ++i) block(i, j, i == first);
      write_keys(j * kSide, first < end);
    }
    for (int64_t i = 0; i < blocks_; ++i) write_queries(i);
  }

 private:
  // Whether all blocks of queries see the first keys; else dq begins as 0.
  bool from_first_keys() const { return op_.window == 0 && op_.offset == 0; }
  // Blocks of queries that see keys of block j.
  int64_t first_block(int64_t j) const {
    const int64_t first = op_.causal       ? j * kSide - op_.offset
                          : op_.window > 0 ? j * kSide - op_.offset - op_.window + 1
                                           : 0;
    return first > 0 ? first / kSide : 0;
  }
  int64_t end_block(int64_t j) const {
    if (op_.window == 0) return blocks_;
    const int64_t end = (j + 1) * kSide - op_.offset + op_.window - 1;  // of queries that the last key sees
    return end <= 0 ? 0 : end < blocks_ * kSide ? blocks_of(end, kSide) : blocks_;
  }

  int64_t panel_bytes() const { return columns_ * kPairBytes; }            // of 32 rows of a head, pairs along D
  int64_t column_bytes() const { return blocks_ * kPanels * kPairBytes; }  // of 32 columns, pairs along the queries
  int64_t panels_at(int64_t column) const { return columns_ - column < kPanels ? columns_ - column : kPanels; }

  void pack_queries() {
    if (!from_first_keys())
      for (int64_t i = 0; i < blocks_ * column_blocks_ * kBlockFloats; ++i) dq_[i] = 0;
    for (int64_t panel = 0; panel < blocks_ * kPanels; ++panel) {
      const FlashRows q = rows_of(op_.q, b_, panel * kPanel, h_, op_.queries),
                      dout = rows_of(op_.dout, b_, panel * kPanel, h_, op_.queries);
      pack_rows(pack_b_transposed, q, op_.head_size, q_rows_ + panel * panel_bytes(), kPairBytes);
      pack_rows(pack_b_transposed, dout, op_.head_size, dout_rows_ + panel * panel_bytes(), kPairBytes);
      pack_rows(pack_b, q, op_.head_size, q_columns_ + panel * kPairBytes, column_bytes());
      pack_rows(pack_b, dout, op_.head_size, dout_columns_ + panel * kPairBytes, column_bytes());
    }
    const float* lse = op_.lse + (b_ * op_.heads + h_) * op_.queries;
    const FlashRows out = rows_of(op_.out, b_, 0, h_, op_.queries), dout = rows_of(op_.dout, b_, 0, h_, op_.queries);
    for (int64_t i = 0; i < blocks_ * kSide; ++i) {
      const bool sees = i < op_.queries && lse[i] != -__builtin_inff();
      lse_[i] = sees ? lse[i] * kLog2Of_e : __builtin_inff();  // probabilities of 0
      delta_[i] = sees ? dot_row(out.data + i * out.stride, dout.data + i * dout.stride, op_.head_size) : 0;
    }
  }

  void pack_keys(int64_t key) {
    for (int64_t panel = 0; panel < kPanels; ++panel) {
      const FlashRows k = rows_of(op_.k, b_, key + panel * kPanel, g_, op_.keys),
                      v = rows_of(op_.v, b_, key + panel * kPanel, g_, op_.keys);
      pack_rows(pack_a, k, op_.head_size, k_rows_ + panel * panel_bytes(), kPairBytes);
      pack_rows(pack_a, v, op_.head_size, v_rows_ + panel * panel_bytes(), kPairBytes);
      pack_rows(pack_b, k, op_.head_size, k_columns_ + panel * kPairBytes, kPanels * kPairBytes);
    }
  }

  void block(int64_t i, int64_t j, bool first) {
    const int64_t panel = panel_bytes(), queries = i * kPanels * panel;
    multiply({piece_, k_rows_, q_rows_ + queries, panel, panel, columns_}, scores_, false);
    multiply({piece_, v_rows_, dout_rows_ + queries, panel, panel, columns_}, dprobabilities_, false);
    if (op_.softcap > 0) tanh_of_blocks(scores_, 1, op_.scale / op_.softcap);
    const int64_t distance = (j - i) * kSide - op_.offset;
    const int64_t begin = op_.causal       ? distance
                          : op_.window > 0 ? distance - op_.window + 1
                                           : -kSide,
                  end = op_.window > 0 ? distance + op_.window : 2 * kSide;
    grad_step({scores_, dprobabilities_, op_.keys - j * kSide, begin, end, op_.softcap > 0,
               (op_.softcap > 0 ? op_.softcap : op_.scale) * kLog2Of_e, lse_ + i * kSide, delta_ + i * kSide,
               probabilities_, dscores_});
    transpose_dscores();
    const bool first_keys = j == 0 && from_first_keys();
    for (int64_t column = 0; column < columns_; column += kPanels) add_products(i, column, first, first_keys);
  }

  // Keys by queries, as A, to queries by keys, as A.
  void transpose_dscores() {
    for (int64_t row = 0; row < kPanels; ++row)
      for (int64_t column = 0; column < kPanels; ++column)
        pack_a_transposed(reinterpret_cast<const uint16_t*>(dscores_ + (row * kPanels + column) * kPairBytes), kPanel,
                          turned_ + (column * kPanels + row) * kPairBytes);
  }

  void add_products(int64_t i, int64_t column, bool first_queries, bool first_keys) {
    const int64_t side = kPanels * kPairBytes, there = panels_at(column), at = column / kPanels * kBlockFloats;
    const int64_t queries = column * column_bytes() + i * side;
    multiply({piece_, probabilities_, dout_columns_ + queries, side, column_bytes(), kPanels, there}, dv_ + at,
             !first_queries);
    multiply({piece_, dscores_, q_columns_ + queries, side, column_bytes(), kPanels, there}, dk_ + at, !first_queries);
    multiply({piece_, turned_, k_columns_ + column * side, side, side, kPanels, there},
             dq_ + i * column_blocks_ * kBlockFloats + at, !first_keys);
  }

  // [64, D] to rows of `heads` heads from `position` of `positions` on.
  template <class T>
  void write(const float* blocks, float factor, int64_t position, int64_t positions, int64_t heads, int64_t head,
             T* to) const {
    const int64_t D = op_.head_size, rows = positions - position < kSide ? positions - position : kSide;
    to += ((b_ * positions + position) * heads + head) * D;
    for (int64_t c = 0; c < D; c += kSide, blocks += kBlockFloats)
      write_rows({blocks, nullptr, factor, rows, D - c < kSide ? D - c : kSide, heads * D}, to + c);
  }

  void write_keys(int64_t key, bool seen) {
    if (!seen)  // by no query
      for (int64_t i = 0; i < column_blocks_ * kBlockFloats; ++i) dk_[i] = dv_[i] = 0;
    if (op_.groups < op_.heads) {
      write(dk_, op_.scale, key, op_.keys, op_.heads, h_, op_.head_dk);
      write(dv_, 1, key, op_.keys, op_.heads, h_, op_.head_dv);
    } else {
      write(dk_, op_.scale, key, op_.keys, op_.groups, g_, op_.dk);
      write(dv_, 1, key, op_.keys, op_.groups, g_, op_.dv);
    }
  }

  void write_queries(int64_t i) {
    write(dq_ + i * column_blocks_ * kBlockFloats, op_.scale, i * kSide, op_.queries, op_.heads, h_, op_.dq);
  }

  const FlashBackward& op_;
  const PieceProduct piece_;
  Scratch scratch_;
  int64_t b_ = 0, h_ = 0, g_ = 0;
  const int64_t blocks_ = blocks_of(op_.queries, kSide), columns_ = blocks_of(op_.head_size, kPanel);
  const int64_t column_blocks_ = blocks_of(columns_, kPanels), head_bytes_ = blocks_ * kPanels * panel_bytes();
  // Operands: rows have pairs along D, columns have pairs along the positions.
  char* const q_rows_ = scratch_.room<char>(head_bytes_);
  char* const q_columns_ = scratch_.room<char>(head_bytes_);
  char* const dout_rows_ = scratch_.room<char>(head_bytes_);
  char* const dout_columns_ = scratch_.room<char>(head_bytes_);
  char* const k_rows_ = scratch_.room<char>(kPanels * panel_bytes());
  char* const k_columns_ = scratch_.room<char>(kPanels * panel_bytes());
  char* const v_rows_ = scratch_.room<char>(kPanels * panel_bytes());
  char* const probabilities_ = scratch_.room<char>(kBlockBytes);
  char* const dscores_ = scratch_.room<char>(kBlockBytes);
  char* const turned_ = scratch_.room<char>(kBlockBytes);
  float* const scores_ = scratch_.room<float>(kBlockFloats * 4);
  float* const dprobabilities_ = scratch_.room<float>(kBlockFloats * 4);
  float* const dk_ = scratch_.room<float>(column_blocks_ * kBlockFloats * 4);
  float* const dv_ = scratch_.room<float>(column_blocks_ * kBlockFloats * 4);
  float* const dq_ = scratch_.room<float>(blocks_ * column_blocks_ * kBlockFloats * 4);
  float* const lse_ = scratch_.room<float>(blocks_ * kSide * 4);
  float* const delta_ = scratch_.room<float>(blocks_ * kSide * 4);
};

// [H / G, D] float32 to [D].
void sum_heads(const float* heads, int64_t count, int64_t size, uint16_t* to) {
  for (int64_t d = 0; d < size; ++d) {
    float sum = heads[d];
    for (int64_t i = 1; i < count; ++i) sum += heads[i * size + d];
    to[d] = to_bf16(sum);
  }
}

}  // namespace

int64_t flash_scratch_bytes(const FlashBackward& op) { return Head::bytes(op); }
int64_t flash_tasks(const FlashBackward& op) { return op.batch * op.heads; }

void flash_backward_cpu(const FlashBackward& op, void* scratch, int64_t task_begin, int64_t task_end) {
  const TileSetup tiles(op.unit == ProductUnit::amx);
  Head head(op, scratch);
  for (int64_t t = task_begin; t < task_end; ++t) head.run(t);
}

void flash_sum_heads_cpu(const FlashBackward& op, int64_t row_begin, int64_t row_end) {
  const int64_t D = op.head_size, count = op.heads / op.groups;
  for (int64_t row = row_begin; row < row_end; ++row) {
    sum_heads(op.head_dk + row * count * D, count, D, op.dk + row * D);
    sum_heads(op.head_dv + row * count * D, count, D, op.dv + row * D);
  }
}

}  // namespace drivetrain::kernels
