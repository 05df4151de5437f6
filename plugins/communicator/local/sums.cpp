#include "sums.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include <drivetrain/error.h>
#include <drivetrain/vector_clones.h>

#define LOCAL_LOOP _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i)

namespace drivetrain::local {

// The loops over elements, once per type T of the buffers and A of the sum. ivdep: `out` is one of the operands or
// apart from both. Not templates, because target_clones does not go with them.
#define LOCAL_KERNELS(T, A)                                                          \
  DRIVETRAIN_VECTOR_CLONES void add_two(A* out, const T* a, const T* b, int64_t n) { \
    LOCAL_LOOP out[i] = static_cast<A>(static_cast<A>(a[i]) + static_cast<A>(b[i])); \
  }                                                                                  \
  DRIVETRAIN_VECTOR_CLONES void add_to(A* out, const T* a, int64_t n) {              \
    LOCAL_LOOP out[i] = static_cast<A>(out[i] + static_cast<A>(a[i]));               \
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

template <class T, class A>
void sum(void* raw, const char* const* sources, int64_t ranks, int64_t count) {
  T* out = static_cast<T*>(raw);
  if (ranks == 1) {
    if (raw != sources[0]) memcpy(raw, sources[0], static_cast<size_t>(count) * sizeof(T));
    return;
  }
  if constexpr (std::is_same_v<T, A>)
    if (ranks == 2)  // element by element, so the result may overwrite an operand
      return add_two(out, reinterpret_cast<const T*>(sources[0]), reinterpret_cast<const T*>(sources[1]), count);
  alignas(64) A scratch[kLevels * kBlock];
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t n = std::min(kBlock, count - at);
    node<T, A>(scratch, sources, 0, ranks, at, n, scratch + kBlock);
    if constexpr (std::is_same_v<T, A>)
      memcpy(out + at, scratch, static_cast<size_t>(n) * sizeof(T));
    else
      round_to(out + at, scratch, n);
  }
}

using Sum = void (*)(void*, const char* const*, int64_t, int64_t);

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

void tree_sum(at::ScalarType dtype, void* out, const char* const* sources, int64_t ranks, int64_t count) {
  const Sum add = sum_of(dtype);
  if (add == nullptr) throw fail(ErrorCode::config, "communicator/local: no sum over ", c10::toString(dtype));
  add(out, sources, ranks, count);
}

}  // namespace drivetrain::local
