// Forward: which blocks a task multiplies, and where they lie.
#include <cmath>

#include "kernels/attention/blocks.h"

namespace drivetrain::kernels {
namespace {

constexpr int64_t kStep = 4;  // blocks of keys between two visits of a block of out

// Keys and values as operands of products, one (b, g) behind the other: first [panels of keys][pairs of D], then
// [panels of D][pairs of keys].
struct PackedKeys {
  const FlashForward& op;
  int64_t columns = blocks_of(op.head_size, kPanel), rows = kPanels * blocks_of(op.keys, kSide);

  int64_t bytes() const { return columns * rows * kPairBytes; }
  char* keys(int64_t b, int64_t g, int64_t panel) const {
    return static_cast<char*>(op.packed) + (b * op.groups + g) * 2 * bytes() + panel * columns * kPairBytes;
  }
  char* values(int64_t b, int64_t g, int64_t panel) const { return keys(b, g, 0) + bytes() + panel * kPairBytes; }
  int64_t value_panel() const { return rows * kPairBytes; }  // bytes
};

class Task {
 public:
  Task(const FlashForward& op, void* scratch) : op_(op), packed_{op}, piece_(piece_of(op.unit)), scratch_(scratch) {}

  static int64_t bytes(const FlashForward& op) {
    Task task(op, nullptr);
    return task.scratch_.used();
  }

  void run(int64_t task) {
    const int64_t blocks = blocks_of(op_.queries, kSide), n = task % blocks, head = task / blocks;
    // Short and long rows of causal blocks in turns, so that parts of a head's tasks take equal times.
    run(head / op_.heads, head % op_.heads, n % 2 == 0 ? n / 2 : blocks - 1 - n / 2);
  }

 private:
  void run(int64_t b, int64_t h, int64_t block) {
    const int64_t g = h / (op_.heads / op_.groups), first = block * kSide;
    const FlashRows rows = rows_of(op_.q, b, first, h, op_.queries);
    for (int64_t panel = 0; panel < kPanels; ++panel)
      pack_rows(pack_a, {rows.data + panel * kPanel * rows.stride, rows.stride, rows.count - panel * kPanel},
                op_.head_size, q_ + panel * packed_.columns * kPairBytes, kPairBytes);
    for (int64_t r = 0; r < kSide; ++r) maxima_[r] = -__builtin_inff();
    for (int64_t i = 0; i < kSide * 16; ++i) sums_[i] = 0;
    const int64_t begin = first_key(op_, first), last = end_key(op_, first + kSide - 1);
    const int64_t from = begin > 0 ? begin / kSide * kSide : 0, seen = last < op_.keys ? last : op_.keys;
    for (int64_t key = from; key < seen; key += kStep * kSide) step(b, g, first, key, seen, key == from);
    if (seen <= from)
      for (int64_t i = 0; i < blocks_of(packed_.columns, kPanels) * kBlockFloats; ++i) out_[i] = 0;
    end(b, h, first);
  }

  void step(int64_t b, int64_t g, int64_t first, int64_t key, int64_t seen, bool is_first) {
    const int64_t blocks = seen - key >= kStep * kSide ? kStep : blocks_of(seen - key, kSide);
    const int64_t pairs = packed_.columns, panel = key / kPanel;
    for (int64_t i = 0; i < blocks; ++i)
      multiply({piece_, q_, packed_.keys(b, g, panel + i * kPanels), pairs * kPairBytes, pairs * kPairBytes, pairs},
               scores_ + i * kBlockFloats, false);
    if (op_.softcap > 0) tanh_of_blocks(scores_, blocks, op_.scale / op_.softcap);
    softmax_step({scores_, blocks, op_.keys - key, first_key(op_, first) - key, end_key(op_, first) - key,
                  (op_.softcap > 0 ? op_.softcap : op_.scale) * kLog2Of_e, maxima_, sums_, shrink_, probabilities_,
                  kStep * kPanels * kPairBytes});
    for (int64_t column = 0; column < packed_.columns; column += kPanels) {
      float* const out = out_ + column / kPanels * kBlockFloats;
      if (!is_first) scale_rows(out, shrink_);
      const int64_t there = packed_.columns - column < kPanels ? packed_.columns - column : kPanels;
      multiply({piece_, probabilities_, packed_.values(b, g, panel) + column * packed_.value_panel(),
                kStep * kPanels * kPairBytes, packed_.value_panel(), blocks * kPanels, there},
               out, !is_first);
    }
  }

  void end(int64_t b, int64_t h, int64_t first) {
    const int64_t rows = op_.queries - first < kSide ? op_.queries - first : kSide;
    float* const lse = op_.lse + (b * op_.heads + h) * op_.queries + first;
    for (int64_t r = 0; r < kSide; ++r) {
      const float sum = sum_of_lanes(sums_ + r * 16);
      shrink_[r] = sum > 0 ? 1 / sum : 0;
      if (r < rows) lse[r] = maxima_[r] * kLogOf_2 + std::log(sum);
    }
    for (int64_t column = 0; column < op_.head_size; column += kSide) {
      const int64_t columns = op_.head_size - column < kSide ? op_.head_size - column : kSide;
      uint16_t* const to = op_.out + ((b * op_.queries + first) * op_.heads + h) * op_.head_size + column;
      write_rows({out_ + column / kSide * kBlockFloats, shrink_, 1, rows, columns, op_.heads * op_.head_size}, to);
    }
  }

  const FlashForward& op_;
  const PackedKeys packed_;
  const PieceProduct piece_;
  Scratch scratch_;
  char* const q_ = scratch_.room<char>(kPanels * packed_.columns * kPairBytes);
  float* const scores_ = scratch_.room<float>(kStep * kBlockFloats * 4);
  char* const probabilities_ = scratch_.room<char>(kStep * kBlockBytes);
  float* const out_ = scratch_.room<float>(blocks_of(packed_.columns, kPanels) * kBlockFloats * 4);
  float* const maxima_ = scratch_.room<float>(kSide * 4);
  float* const sums_ = scratch_.room<float>(kSide * 16 * 4);
  float* const shrink_ = scratch_.room<float>(kSide * 4);
};

// 32 x 32 from `rows` on, with zeros where there is nothing.
void pack_end(PackPair pack, const FlashRows& rows, int64_t columns, char* to) {
  uint16_t window[kPanel * kPanel];
  for (int64_t r = 0; r < kPanel; ++r)
    for (int64_t c = 0; c < kPanel; ++c)
      window[r * kPanel + c] = r < rows.count && c < columns ? rows.data[r * rows.stride + c] : uint16_t{0};
  pack(window, kPanel, to);
}

}  // namespace

void pack_rows(PackPair pack, const FlashRows& rows, int64_t head_size, char* to, int64_t to_next) {
  for (int64_t column = 0; column < head_size; column += kPanel, to += to_next) {
    const FlashRows here = {rows.data + column, rows.stride, rows.count};
    if (rows.count >= kPanel && head_size - column >= kPanel)
      pack(here.data, here.stride, to);
    else
      pack_end(pack, here, head_size - column, to);
  }
}

int64_t flash_packed_bytes(const FlashForward& op) { return op.batch * op.groups * 2 * PackedKeys{op}.bytes(); }
int64_t flash_packs(const FlashForward& op) { return op.batch * op.groups * PackedKeys{op}.rows; }

void flash_pack(const FlashForward& op, int64_t pack_begin, int64_t pack_end) {
  const PackedKeys packed{op};
  for (int64_t at = pack_begin; at < pack_end; ++at) {
    const int64_t panel = at % packed.rows, g = at / packed.rows % op.groups, b = at / packed.rows / op.groups;
    const int64_t key = panel * kPanel;
    pack_rows(pack_b_transposed, rows_of(op.k, b, key, g, op.keys), op.head_size, packed.keys(b, g, panel), kPairBytes);
    pack_rows(pack_b, rows_of(op.v, b, key, g, op.keys), op.head_size, packed.values(b, g, panel),
              packed.value_panel());
  }
}

int64_t flash_tasks(const FlashForward& op) { return op.batch * op.heads * blocks_of(op.queries, kSide); }
int64_t flash_scratch_bytes(const FlashForward& op) { return Task::bytes(op); }

void flash_forward_cpu(const FlashForward& op, void* scratch, int64_t task_begin, int64_t task_end) {
  const TileSetup tiles(op.unit == ProductUnit::amx);
  Task task(op, scratch);
  for (int64_t t = task_begin; t < task_end; ++t) task.run(t);
}

}  // namespace drivetrain::kernels
