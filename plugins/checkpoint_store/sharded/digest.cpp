#include "digest.h"

#include <new>

// The library's own choice of the processor's widest instructions, where it has one.
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

namespace drivetrain::sharded {

Digest digest_of(const void* data, size_t bytes) {
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return {hash.high64, hash.low64};
}

DigestStream::DigestStream() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

void DigestStream::add(const void* data, size_t bytes) { XXH3_128bits_update(state_.get(), data, bytes); }

Digest DigestStream::digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
  return {hash.high64, hash.low64};
}

void DigestStream::FreeState::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

std::string Digest::text() const {
  std::string text;
  for (const uint64_t half : {high, low})
    for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[(half >> shift) & 15];
  return text;
}

std::optional<Digest> read_digest(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  uint64_t halves[2] = {0, 0};
  for (size_t i = 0; i < 32; ++i) {
    const char c = text[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return std::nullopt;
    halves[i / 16] = halves[i / 16] << 4 | static_cast<uint64_t>(digit);
  }
  return Digest{halves[0], halves[1]};
}

}  // namespace drivetrain::sharded
