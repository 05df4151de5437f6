#include "sums.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <bit>
#include <type_traits>

#include <drivetrain/error.h>
#include <drivetrain/vector_clones.h>

#include "copies.h"

#define LOCAL_LOOP _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i)

namespace drivetrain::local {

// The loops over elements, once per type T of the buffers and A of the sum. ivdep: `out` is one of the operands or
// apart from both. Not templates, because target_clones does not go with them.
#define LOCAL_KERNELS(T, A)                                                                    \
  DRIVETRAIN_VECTOR_CLONES void add_two(A* out, const T* a, const T* b, int64_t n) {           \
    LOCAL_LOOP out[i] = static_cast<A>(static_cast<A>(a[i]) + static_cast<A>(b[i]));           \
  }                                                                                            \
  DRIVETRAIN_VECTOR_CLONES void add_both(A* out, A* also, const T* a, const T* b, int64_t n) { \
    LOCAL_LOOP out[i] = also[i] = static_cast<A>(static_cast<A>(a[i]) + static_cast<A>(b[i])); \
  }                                                                                            \
  DRIVETRAIN_VECTOR_CLONES void add_to(A* out, const T* a, int64_t n) {                        \
    LOCAL_LOOP out[i] = static_cast<A>(out[i] + static_cast<A>(a[i]));                         \
  }
LOCAL_KERNELS(float, float)
LOCAL_KERNELS(double, double)
LOCAL_KERNELS(uint8_t, uint8_t)
LOCAL_KERNELS(uint16_t, uint16_t)
LOCAL_KERNELS(uint32_t, uint32_t)
LOCAL_KERNELS(uint64_t, uint64_t)
LOCAL_KERNELS(c10::BFloat16, float)
LOCAL_KERNELS(c10::Half, float)

DRIVETRAIN_VECTOR_CLONES void round_to(c10::BFloat16* out, const float* a, int64_t n) {
  LOCAL_LOOP out[i] = c10::BFloat16(a[i]);
}
DRIVETRAIN_VECTOR_CLONES void round_to(c10::Half* out, const float* a, int64_t n) {
  LOCAL_LOOP out[i] = c10::Half(a[i]);
}

namespace {

constexpr int64_t kBlock = 1024;  // elements; a block of every level of the tree stays in the first-level cache
constexpr int kLevels = 16;       // 65536 ranks

// Sum over sources [first, first + ranks), ranks >= 2, of elements [at, at + n) into out; one kBlock of scratch per
// level.
template <class T, class A>
void node(A* out, const char* const* sources, int64_t first, int64_t ranks, int64_t at, int64_t n, A* scratch) {
  const auto source = [&](int64_t rank) { return reinterpret_cast<const T*>(sources[rank]) + at; };
  if (ranks == 2) return add_two(out, source(first), source(first + 1), n);
  const auto left = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(ranks - 1)));
  node<T, A>(out, sources, first, left, at, n, scratch);
  if (ranks - left == 1) return add_to(out, source(first + left), n);
  node<T, A>(scratch, sources, first + left, ranks - left, at, n, scratch + kBlock);
  add_to(out, scratch, n);
}

// Whether one's own sums are written past the caches: one result, large, and none of the operands, whose lines are
// there.
bool streams(char* const* outs, int64_t results, const char* const* sources, int64_t ranks, int64_t bytes) {
  return results == 1 && bytes >= kStreamBytes && std::find(sources, sources + ranks, outs[0]) == sources + ranks;
}

template <class T, class A>
void sum(char* const* outs, int64_t results, const char* const* sources, int64_t ranks, int64_t count, bool for_peers) {
  const auto out = [&](int64_t result, int64_t at) { return reinterpret_cast<T*>(outs[result]) + at; };
  const auto source = [&](int64_t rank) { return reinterpret_cast<const T*>(sources[rank]); };
  const int64_t size = sizeof(T);
  if (ranks == 1) {
    for (int64_t r = 0; r < results; ++r) copy_bytes(outs[r], sources[0], count * size);
    return;
  }
  const bool stream = for_peers || streams(outs, results, sources, ranks, count * size);
  if constexpr (std::is_same_v<T, A>) {  // element by element, so results may overwrite operands
    if (ranks == 2 && results == 1 && !stream) return add_two(out(0, 0), source(0), source(1), count);
    if (ranks == 2 && results == 2) return add_both(out(0, 0), out(1, 0), source(0), source(1), count);
  }
  alignas(64) A scratch[kLevels * kBlock];
  alignas(64) T rounded[kBlock];
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t n = std::min(kBlock, count - at);
    node<T, A>(scratch, sources, 0, ranks, at, n, scratch + kBlock);
    const T* result = rounded;
    if constexpr (std::is_same_v<T, A>)
      result = scratch;
    else
      round_to(rounded, scratch, n);
    for (int64_t r = 0; r < results; ++r)
      (stream ? stream_bytes : copy_bytes)(outs[r] + at * size, reinterpret_cast<const char*>(result), n * size);
  }
  if (stream) end_of_stream();
}

using Sum = void (*)(char* const*, int64_t, const char* const*, int64_t, int64_t, bool);

// Two's complement: signed integers are added as unsigned ones.
Sum sum_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return sum<float, float>;
    case at::kDouble:
      return sum<double, double>;
    case at::kBFloat16:
      return sum<c10::BFloat16, float>;
    case at::kHalf:
      return sum<c10::Half, float>;
    case at::kByte:
    case at::kChar:
      return sum<uint8_t, uint8_t>;
    case at::kShort:
    case at::kUInt16:
      return sum<uint16_t, uint16_t>;
    case at::kInt:
    case at::kUInt32:
      return sum<uint32_t, uint32_t>;
    case at::kLong:
    case at::kUInt64:
      return sum<uint64_t, uint64_t>;
    default:
      return nullptr;
  }
}

}  // namespace

bool can_sum(at::ScalarType dtype) { return sum_of(dtype) != nullptr; }

void tree_sum(at::ScalarType dtype, char* const* outs, int64_t results, const char* const* sources, int64_t ranks,
              int64_t count, bool for_peers) {
  const Sum add = sum_of(dtype);
  if (add == nullptr) throw fail(ErrorCode::config, "communicator/local: no sum over ", c10::toString(dtype));
  if (count > 0) add(outs, results, sources, ranks, count, for_peers);
}

void tree_sum(at::ScalarType dtype, void* out, const char* const* sources, int64_t ranks, int64_t count) {
  char* const only = static_cast<char*>(out);
  tree_sum(dtype, &only, 1, sources, ranks, count);
}

}  // namespace drivetrain::local
