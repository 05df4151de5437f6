// A digest of bytes that finds mistakes, not forgery.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace drivetrain {

inline constexpr uint64_t kDigestStart = 0xcbf29ce484222325u;

// FNV-1a over words of eight bytes: any changed bit changes it. `digest`: of what stands before.
inline uint64_t digest_of(const void* data, size_t bytes, uint64_t digest = kDigestStart) {
  const auto* const at = static_cast<const char*>(data);
  for (size_t i = 0; i < bytes; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, at + i, std::min<size_t>(8, bytes - i));
    digest = (digest ^ word) * 0x100000001b3u;
    digest ^= digest >> 32;
  }
  return digest;
}

// Of a digest, what a double holds as a whole number.
inline double as_number(uint64_t digest) { return static_cast<double>(digest >> 12); }

}  // namespace drivetrain
