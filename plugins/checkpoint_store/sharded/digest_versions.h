// XXH3 compiled for one width of vectors. All give the same digest.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace drivetrain::sharded {

// Into `out`: the high and the low half.
using DigestFunction = void (*)(const void* data, size_t bytes, uint64_t out[2]);

#if defined(__x86_64__)
void digest_avx2(const void* data, size_t bytes, uint64_t out[2]);
void digest_avx512(const void* data, size_t bytes, uint64_t out[2]);
#endif

}  // namespace drivetrain::sharded
