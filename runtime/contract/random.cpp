// Counter-based random numbers over tensors. Element e of a sample (or of a parameter) is word e % 4 of Philox block e
// / 4, whatever slice asks for it.
#include <drivetrain/random.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/ops/kernel_call.h>
#include <drivetrain/toolkit/units/differentiable.h>

#include "contract/normal_block.h"
#include "kernels/random/dropout.h"

namespace drivetrain {
namespace {

using philox_detail::kLanes;
using philox_detail::Words;
using RandomKeyWords = std::array<uint32_t, 2>;

constexpr int64_t kRandomChunk = 4 * kLanes;  // elements drawn together

uint32_t low_word(uint64_t x) { return static_cast<uint32_t>(x); }
uint32_t high_word(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

// 192 bits of (seed, step, site) become Philox's 64 key bits by Philox itself.
RandomKeyWords mixed_key(uint64_t seed, uint64_t step, uint64_t site) {
  const auto words =
      philox({low_word(site), high_word(site), low_word(step), high_word(step)}, {low_word(seed), high_word(seed)});
  return {words[0], words[1]};
}

// Where the numbers of one sample of a tensor stand in the sample of the whole tensor: runs of neighbouring elements,
// in the order of the tensor at hand.
struct RandomRun {
  int64_t whole = 0, local = 0, count = 0;  // first element there, here; elements
  int64_t chunk = 0;                        // the first, counted over all runs
};

class RandomRuns {
 public:
  RandomRuns(const char* what, const at::Tensor& t, const RandomKey& key) {
    if (t.dim() == 0)
      throw fail(ErrorCode::internal, what, " wants a tensor whose first dimension is samples, got a scalar");
    samples_ = t.size(0), row_ = samples_ > 0 ? t.numel() / samples_ : 0;
    if (key.rows.empty()) {
      add(0, row_);
    } else {
      const int64_t rows = checked_rows(what, t, key.rows), per_row = rows > 0 ? row_ / rows : 0;
      for (const RowRange& range : key.rows) add(range.first * per_row, range.count * per_row);
    }
  }
  int64_t samples() const { return samples_; }
  int64_t row() const { return row_; }        // elements of a sample
  int64_t chunks() const { return chunks_; }  // of a sample
  const std::vector<RandomRun>& runs() const { return runs_; }
  const RandomRun& run_of(int64_t chunk) const {
    size_t i = runs_.size() - 1;
    while (runs_[i].chunk > chunk) --i;
    return runs_[i];
  }

 private:
  static int64_t checked_rows(const char* what, const at::Tensor& t, const std::vector<RowRange>& ranges) {
    int64_t rows = 0;
    for (const RowRange& range : ranges) rows += range.count;
    if (t.dim() < 2 || t.size(1) != rows)
      throw fail(ErrorCode::internal, what, ": the key is for ", rows,
                 " rows in dimension 1, the tensor has the shape ", t.sizes());
    return rows;
  }
  void add(int64_t whole, int64_t count) {
    if (count == 0) return;
    runs_.push_back({whole, runs_.empty() ? 0 : runs_.back().local + runs_.back().count, count, chunks_});
    chunks_ += (count + whole % 4 + kRandomChunk - 1) / kRandomChunk;
  }

  int64_t samples_ = 0, row_ = 0, chunks_ = 0;
  std::vector<RandomRun> runs_;
};

// Draws a tensor's uniform numbers in parallel: use(numbers, first flat element, count). A run may begin inside a
// Philox block: chunks begin with that block.
template <class Use>
void for_samples(const RandomRuns& runs, const RandomKey& key, const Use& use) {
  if (runs.samples() == 0 || runs.row() == 0) return;
  const RandomKeyWords words_key = mixed_key(key.seed, key.step, key.site);
  at::parallel_for(0, runs.samples() * runs.chunks(), 8, [&](int64_t begin, int64_t end) {
    Words words;
    float u[kRandomChunk];
    for (int64_t c = begin; c < end; ++c) {
      const int64_t sample = c / runs.chunks(), chunk = c % runs.chunks();
      const RandomRun& run = runs.run_of(chunk);
      const int64_t drawn = run.whole / 4 * 4 + (chunk - run.chunk) * kRandomChunk;
      const int64_t first = std::max(drawn, run.whole), last = std::min(drawn + kRandomChunk, run.whole + run.count);
      philox_detail::draw(words, static_cast<uint64_t>(drawn / 4), static_cast<uint64_t>(key.first_sample + sample),
                          words_key);
      philox_detail::uniforms(words, u);
      use(u + (first - drawn), sample * runs.row() + run.local + first - run.whole, last - first);
    }
  });
}

// out = x * keep * scale, keep where the uniform number is at least p. Backward is the same with other operands: the
// mask is drawn again instead of being kept.
template <class T>
void drop(const T* x, T* out, const RandomRuns& runs, double p, const RandomKey& key) {
  const auto limit = static_cast<float>(p);
  const float scale = p < 1 ? static_cast<float>(1 / (1 - p)) : 0;
  for_samples(runs, key, [=](const float* u, int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[first + i] = u[i] >= limit ? static_cast<T>(x[first + i] * scale) : T(0);
  });
}

#ifdef DRIVETRAIN_WITH_CUDA
// Draws run after run on the device; `op` has all but the places.
template <class Op>
void draw_there(Op op, const RandomRuns& runs, const RandomKey& key, const at::Device& device,
                int (*launch)(const Op&, void*), const char* what) {
  const RandomKeyWords words = mixed_key(key.seed, key.step, key.site);
  for (const RandomRun& run : runs.runs()) {
    op.places = {runs.samples(), runs.row(), run.whole, run.local, run.count, static_cast<uint64_t>(key.first_sample),
                 words[0],       words[1]};
    check_launch(launch(op, current_stream(device)), what);
  }
}

bool fill_there(at::Tensor& out, const RandomRuns& runs, const RandomKey& key) {
  if (!out.is_cuda()) return false;
  draw_there(kernels::Uniform{out.mutable_data_ptr<float>(), {}}, runs, key, out.device(), kernels::uniform_cuda,
             "uniform numbers");
  return true;
}

at::Tensor dropped_there(const at::Tensor& x, double p, const RandomKey& key) {
  at::Tensor out = at::empty_like(x);
  kernels::Dropout op;
  op.x = x.const_data_ptr(), op.out = out.mutable_data_ptr(), op.dtype = ops::kernel_dtype(x);
  op.limit = static_cast<float>(p), op.scale = p < 1 ? static_cast<float>(1 / (1 - p)) : 0;
  draw_there(op, RandomRuns("dropout", x, key), key, x.device(), kernels::dropout_cuda, "dropout");
  return out;
}
#else
bool fill_there(at::Tensor&, const RandomRuns&, const RandomKey&) { return false; }
at::Tensor dropped_there(const at::Tensor&, double, const RandomKey&) { return {}; }
#endif

// On a device, for types without a kernel: the same numbers. Each call may wait for the host.
at::Tensor dropped_by_operators(const at::Tensor& x, double p, const RandomKey& key) {
  at::Tensor u = at::empty(x.sizes(), x.options().dtype(at::kFloat));
  fill_uniform(u, key);
  const auto limit = static_cast<float>(p);
  const double scale = p < 1 ? static_cast<float>(1 / (1 - p)) : 0;
  return x.mul(scale).masked_fill_(u.lt(limit), 0);
}

at::Tensor dropped(const at::Tensor& maybe_strided, double p, const RandomKey& key) {
  const at::Tensor x = maybe_strided.contiguous();
  if (!x.is_cpu()) return ops::has_kernel(x) ? dropped_there(x, p, key) : dropped_by_operators(x, p, key);
  at::Tensor out = at::empty_like(x);
  const RandomRuns runs("dropout", x, key);
  const auto run = [&](auto element) {
    using T = decltype(element);
    drop<T>(x.const_data_ptr<T>(), out.mutable_data_ptr<T>(), runs, p, key);
  };
  switch (x.scalar_type()) {
    case at::kFloat:
      run(float{});
      break;
    case at::kDouble:
      run(double{});
      break;
    case at::kBFloat16:
      run(at::BFloat16{});
      break;
    case at::kHalf:
      run(at::Half{});
      break;
    default:
      throw fail(ErrorCode::internal, "dropout of ", toString(x.scalar_type()), ", wanted a floating dtype");
  }
  return out;
}

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0], c = uint64_t{0xCD9E8D57} * counter[2];
    counter = {high_word(c) ^ counter[1] ^ key[0], low_word(c), high_word(a) ^ counter[3] ^ key[1], low_word(a)};
    key[0] += 0x9E3779B9, key[1] += 0xBB67AE85;
  }
  return counter;
}

std::vector<RowRange> part_of(const std::vector<RowRange>& rows, int64_t parts, int64_t index) {
  int64_t all = 0;
  for (const RowRange& range : rows) all += range.count;
  if (parts < 1 || all % parts != 0)
    throw fail(ErrorCode::internal, all, " rows cannot be cut into ", parts, " even parts");
  std::vector<RowRange> part;
  int64_t skip = index * (all / parts), want = all / parts;
  for (const RowRange& range : rows) {
    const int64_t from = std::min(skip, range.count), count = std::min(range.count - from, want);
    skip -= from, want -= count;
    if (count > 0) part.push_back({range.first + from, count});
  }
  return part;
}

uint64_t hash_name(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

void fill_uniform(at::Tensor& out, const RandomKey& key) {
  const RandomRuns runs("fill_uniform", out, key);
  if (out.scalar_type() != at::kFloat || !out.is_contiguous())
    throw fail(ErrorCode::internal, "fill_uniform wants a contiguous float32 tensor");
  if (!out.is_cpu()) {
    if (fill_there(out, runs, key)) return;
    at::Tensor host = at::empty(out.sizes(), at::TensorOptions(at::kFloat));
    fill_uniform(host, key);
    out.copy_(host);
    return;
  }
  float* data = out.mutable_data_ptr<float>();
  for_samples(runs, key, [=](const float* u, int64_t first, int64_t count) { std::copy(u, u + count, data + first); });
}

void fill_normal(at::Tensor& out, uint64_t seed, std::string_view name, int64_t begin, double std) {
  if (out.scalar_type() != at::kFloat || !out.is_contiguous())
    throw fail(ErrorCode::internal, "fill_normal wants a contiguous float32 tensor");
  if (!out.is_cpu()) {
    at::Tensor host = at::empty(out.sizes(), at::TensorOptions(at::kFloat));
    fill_normal(host, seed, name, begin, std);
    out.copy_(host);
    return;
  }
  // Steps count from 1 and never reach this one: initial values share no number with dropout.
  const RandomKeyWords key = mixed_key(seed, std::numeric_limits<uint64_t>::max(), hash_name(name));
  float* data = out.mutable_data_ptr<float>();
  const int64_t end = begin + out.numel(), first_chunk = begin / kRandomChunk;
  const auto scale = static_cast<float>(std);
  at::parallel_for(first_chunk, (end + kRandomChunk - 1) / kRandomChunk, 16, [=](int64_t from, int64_t to) {
    float block[kRandomChunk];
    Words words;
    for (int64_t e = from * kRandomChunk; e < to * kRandomChunk; e += kRandomChunk) {
      philox_detail::draw(words, static_cast<uint64_t>(e / 4), 0, key);
      philox_detail::normals(words, block);
      const int64_t low = std::max(e, begin), high = std::min(e + kRandomChunk, end);
      for (int64_t i = low; i < high; ++i) data[i - begin] = block[i - e] * scale;
    }
  });
}

at::Tensor dropout(const at::Tensor& x, double p, const RandomKey& key) {
  if (p < 0 || p > 1) throw fail(ErrorCode::config, "dropout ", p, " is not a probability (0 to 1)");
  if (p == 0) return x;
  return differentiable(
      {x}, [&](const Tensors& in) { return Tensors{dropped(in[0], p, key)}; },
      [p, key](const Tensors& dy) { return Tensors{dropped(dy[0], p, key)}; })[0];
}

}  // namespace drivetrain
