#include <drivetrain/toolkit/host_memory/copies.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>

#include <drivetrain/toolkit/vector_clones.h>

namespace drivetrain::toolkit::host_memory {
namespace {

constexpr int64_t kFewBytes = 1 << 10;
constexpr int64_t kLine = 64;

using Line = int64_t __attribute__((vector_size(kLine), aligned(1), may_alias));

// `bytes` is a multiple of four lines.
DRIVETRAIN_VECTOR_CLONES void copy_lines(char* out, const char* in, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 4 * kLine) {
    const auto* from = reinterpret_cast<const Line*>(in + i);
    auto* to = reinterpret_cast<Line*>(out + i);
    const Line a = from[0], b = from[1], c = from[2], d = from[3];
    to[0] = a, to[1] = b, to[2] = c, to[3] = d;
  }
}

}  // namespace

void copy_bytes(char* out, const char* in, int64_t bytes) {
  if (bytes <= 0 || out == in) return;
#if defined(__SSE2__)
  if (bytes >= kStreamBytes) {
    stream_bytes(out, in, bytes);
    return end_of_stream();
  }
#endif
  const int64_t lines = bytes < kFewBytes ? 0 : bytes / (4 * kLine) * (4 * kLine);
  copy_lines(out, in, lines);
  memcpy(out + lines, in + lines, static_cast<size_t>(bytes - lines));
}

void stream_bytes(char* out, const char* in, int64_t bytes) {
#if defined(__SSE2__)
  if (bytes < kFewBytes) return copy_bytes(out, in, bytes);
  const int64_t head = std::min(bytes, static_cast<int64_t>(-reinterpret_cast<uintptr_t>(out) % kLine));
  const int64_t lines = (bytes - head) / kLine * kLine;
  memcpy(out, in, static_cast<size_t>(head));
  for (int64_t i = head; i < head + lines; i += kLine) {
    const auto* from = reinterpret_cast<const __m128i*>(in + i);
    auto* to = reinterpret_cast<__m128i*>(out + i);
    const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a), _mm_stream_si128(to + 1, b), _mm_stream_si128(to + 2, c), _mm_stream_si128(to + 3, d);
  }
  memcpy(out + head + lines, in + head + lines, static_cast<size_t>(bytes - head - lines));
#else
  copy_bytes(out, in, bytes);
#endif
}

void end_of_stream() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace drivetrain::toolkit::host_memory
