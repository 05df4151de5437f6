// The frame around the products of tile pairs: which pieces a task computes, and in which order they are packed, added
// up and written. A task is a group of panels of one operand times a span of panels of the other. Memory is read as
// seldom as the caches allow: a block of C stays in the first cache while k goes on, the group's panels in the second.
#include "kernels/product/product.h"

#include "kernels/common/narrow.h"
#include "kernels/product/tiles.h"

namespace drivetrain::kernels {
namespace {

constexpr int64_t kSpan = 16;   // panels of the packed operand that a task multiplies its own with
constexpr int64_t kStride = 4;  // tile pairs between two visits of a block of C
static_assert(kSpan % 2 == 0);

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// What a task packs itself, at a time.
struct Packing {
  int64_t group;  // panels, an even number
  int64_t chunk;  // tile pairs of a panel
};
constexpr Packing kUsual = {4, 32};
// A weight whose rows are k, for few rows of A on one thread: memory gives whole rows of it one and a half times as
// fast as parts of them. Blocks of C wait in the second cache meanwhile: with what is packed they take 1.5 MB for 64
// rows, and for 128 all of 2 MB. With a second cache of 1 MB nothing was measured.
constexpr Packing kWide = {64, 8};
constexpr int64_t kFewPanels = 4;

// An operand as both sides see it: `size` rows or columns of C, by K.
struct Side {
  const void* data;
  int64_t stride, size;
  bool rows_are_k, is_a;
};

Side side(const Product& op, bool a) {
  return a ? Side{op.a, op.a_stride, op.m, op.a_transposed, true}
           : Side{op.b, op.b_stride, op.n, !op.b_transposed, false};
}
Side shared_side(const Product& op) { return side(op, op.shares_a); }
Side own_side(const Product& op) { return side(op, !op.shares_a); }

Packing packing_of(const Product& op) {
  const bool wide = op.alone && own_side(op).rows_are_k && blocks_of(shared_side(op).size, kPanel) <= kFewPanels;
  return wide ? kWide : kUsual;
}

int64_t pairs_of_k(const Product& op) { return blocks_of(op.k, kPanel); }
// Splitting makes three products of one: K is gone through three times, the smallest products first.
int64_t pairs_of(const Product& op) { return pairs_of_k(op) * (op.split ? 3 : 1); }
bool low_part(bool a, int64_t pass) { return pass == (a ? 1 : 0); }

// 32 x 32 elements from element (row, column) of what is stored, zero beyond `rows` and `columns`.
struct Window {
  uint16_t bits[kPanel * kPanel];

  template <class Element>
  void fill(int64_t rows, int64_t columns, Element element) {
    for (int64_t r = 0; r < kPanel; ++r)
      for (int64_t c = 0; c < kPanel; ++c) bits[r * kPanel + c] = r < rows && c < columns ? element(r, c) : uint16_t{0};
  }
};

DRIVETRAIN_INLINE uint16_t high_bits(float x) { return to_bf16(x); }
DRIVETRAIN_INLINE uint16_t low_bits(float x) { return to_bf16(x - widened(Bf16{to_bf16(x)})); }

// The 32 x 32 bfloat16 of a tile pair: where they are, if they are all there and bfloat16; else made in `window`.
struct Source {
  const uint16_t* rows;
  int64_t stride;
};
Source source_of(const Product& op, const Side& s, int64_t panel, int64_t pair, bool low, Window& window) {
  const int64_t first = panel * kPanel, k = pair * kPanel;
  const int64_t row = s.rows_are_k ? k : first, column = s.rows_are_k ? first : k;
  const int64_t rows = (s.rows_are_k ? op.k : s.size) - row, columns = (s.rows_are_k ? s.size : op.k) - column;
  const bool whole = rows >= kPanel && columns >= kPanel;
  const int64_t offset = row * s.stride + column;
  if (op.dtype == Dtype::bf16) {
    const uint16_t* from = static_cast<const uint16_t*>(s.data) + offset;
    if (whole) return {from, s.stride};
    window.fill(rows, columns, [&](int64_t r, int64_t c) { return from[r * s.stride + c]; });
  } else {
    const float* from = static_cast<const float*>(s.data) + offset;
    const auto part = [&](int64_t r, int64_t c) {
      return low ? low_bits(from[r * s.stride + c]) : high_bits(from[r * s.stride + c]);
    };
    whole ? round_window(from, s.stride, low, window.bits) : window.fill(rows, columns, part);
  }
  return {window.bits, kPanel};
}

// Tile pairs [begin, end) of a panel, one after the other.
void pack_panel(const Product& op, const Side& s, int64_t panel, int64_t begin, int64_t end, char* to) {
  Window window;
  for (int64_t at = begin; at < end; ++at, to += kPairBytes) {
    const int64_t pass = at / pairs_of_k(op);
    const Source from = source_of(op, s, panel, at % pairs_of_k(op), op.split && low_part(s.is_a, pass), window);
    if (s.is_a)
      s.rows_are_k ? pack_a_transposed(from.rows, from.stride, to) : pack_a(from.rows, from.stride, to);
    else
      s.rows_are_k ? pack_b(from.rows, from.stride, to) : pack_b_transposed(from.rows, from.stride, to);
  }
}

// Panels of both operands that a task multiplies.
struct Range {
  int64_t own, own_end, shared, shared_end;
};

int64_t spans(const Product& op) { return blocks_of(product_panels(op), kSpan); }

Range range_of(const Product& op, int64_t task) {
  const int64_t group = packing_of(op).group, own = task / spans(op) * group, shared = task % spans(op) * kSpan;
  return {own, smaller(own + group, blocks_of(own_side(op).size, kPanel)), shared,
          smaller(shared + kSpan, product_panels(op))};
}

class Task {
 public:
  Task(const Product& op, void* scratch)
      : op_(op),
        group_(packing_of(op).group),
        chunk_(packing_of(op).chunk),
        own_(static_cast<char*>(scratch)),
        turned_(reinterpret_cast<float*>(own_ + group_ * chunk_ * kPairBytes)),
        sums_(turned_ + (op.c_transposed ? kBlockFloats : 0)),
        piece_(op.unit == ProductUnit::amx ? piece_by_amx : piece_by_avx512) {}

  void run(int64_t task) {
    const Range range = range_of(op_, task);
    const int64_t all = pairs_of(op_);
    for (int64_t begin = 0; begin < all; begin += chunk_) {
      const int64_t end = smaller(begin + chunk_, all);
      pack_own(range, begin, end);
      for (int64_t shared = range.shared; shared < range.shared_end; shared += 2)
        for (int64_t own = range.own; own < range.own_end; own += 2) {
          float* const sums = block_of(range, own, shared);
          multiply(range, own, shared, begin, end, sums);
          if (end == all) write(op_.shares_a ? shared : own, op_.shares_a ? own : shared, sums);
        }
    }
  }

 private:
  void pack_own(const Range& range, int64_t begin, int64_t end) {
    const bool there = pairs_of(op_) <= chunk_ && range.own == packed_;  // by the task before
    if (there) return;
    // Rows that lie k by k are read as far as the group is wide: a panel of them is one line of the cache.
    const int64_t step = own_side(op_).rows_are_k ? 1 : end - begin;
    for (int64_t at = begin; at < end; at += step)
      for (int64_t own = range.own; own < range.own_end; ++own)
        pack_panel(op_, own_side(op_), own, at, at + step,
                   own_ + ((own - range.own) * chunk_ + at - begin) * kPairBytes);
    packed_ = range.own;
  }

  // Where the whole of K is done at once, every block is finished before the next one and takes its place.
  float* block_of(const Range& range, int64_t own, int64_t shared) {
    if (pairs_of(op_) <= chunk_) return sums_;
    return sums_ + ((shared - range.shared) / 2 * (group_ / 2) + (own - range.own) / 2) * kBlockFloats;
  }

  void multiply(const Range& range, int64_t own, int64_t shared, int64_t begin, int64_t end, float* sums) {
    for (int64_t at = begin; at < end; at += kStride)
      for (int64_t i = 0; i < 2 && own + i < range.own_end; ++i)
        for (int64_t j = 0; j < 2 && shared + j < range.shared_end; ++j) {
          const char* mine = own_ + ((own + i - range.own) * chunk_ + at - begin) * kPairBytes;
          const char* all = static_cast<const char*>(op_.packed) + ((shared + j) * pairs_of(op_) + at) * kPairBytes;
          const int64_t row = op_.shares_a ? j : i, column = op_.shares_a ? i : j;
          float* const c = sums + row * kPanel * kBlockSide + column * kPanel;
          piece_(op_.shares_a ? all : mine, op_.shares_a ? mine : all, smaller(kStride, end - at), c, at > 0);
        }
  }

  // The block of C from panel `row` of A and `column` of B.
  void write(int64_t row, int64_t column, const float* sums) const {
    const int64_t m = row * kPanel, n = column * kPanel;
    const int64_t rows = smaller(kBlockSide, op_.m - m), columns = smaller(kBlockSide, op_.n - n);
    const int64_t size = op_.c_dtype == Dtype::f32 ? 4 : 2;
    const char* bias = op_.bias ? static_cast<const char*>(op_.bias) + n * size : nullptr;
    const int64_t at = op_.c_transposed ? n * op_.c_stride + m : m * op_.c_stride + n;
    BlockEnd end = {sums, rows, columns, bias, static_cast<char*>(op_.c) + at * size, op_.c_stride};
    if (op_.c_transposed) {
      turn_block(sums, turned_);
      end.sums = turned_, end.rows = columns, end.columns = rows;
    }
    op_.c_dtype == Dtype::f32 ? end_block_f32(end, op_.add, op_.stream) : end_block_bf16(end);
  }

  const Product& op_;
  const int64_t group_, chunk_;
  char* const own_;
  float *const turned_, *const sums_;
  const PieceProduct piece_;
  int64_t packed_ = -1;  // the group of panels in own_
};

}  // namespace

int64_t product_panels(const Product& op) { return blocks_of(shared_side(op).size, kPanel); }
int64_t product_packed_bytes(const Product& op) { return product_panels(op) * pairs_of(op) * kPairBytes; }

void product_pack(const Product& op, int64_t panel_begin, int64_t panel_end) {
  char* const to = static_cast<char*>(op.packed);
  for (int64_t panel = panel_begin; panel < panel_end; ++panel)
    pack_panel(op, shared_side(op), panel, 0, pairs_of(op), to + panel * pairs_of(op) * kPairBytes);
}

int64_t product_tasks(const Product& op) {
  return blocks_of(blocks_of(own_side(op).size, kPanel), packing_of(op).group) * spans(op);
}

int64_t product_scratch_bytes(const Product& op) {
  const auto [group, chunk] = packing_of(op);
  const int64_t blocks = pairs_of(op) <= chunk ? 1 : group / 2 * blocks_of(smaller(product_panels(op), kSpan), 2);
  return group * chunk * kPairBytes + (blocks + (op.c_transposed ? 1 : 0)) * kBlockFloats * 4;
}

void product_cpu(const Product& op, void* scratch, int64_t task_begin, int64_t task_end) {
  const TileSetup tiles(op.unit == ProductUnit::amx);
  Task task(op, scratch);
  for (int64_t t = task_begin; t < task_end; ++t) task.run(t);
}

}  // namespace drivetrain::kernels
