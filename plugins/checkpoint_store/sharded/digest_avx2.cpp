#include "digest_versions.h"

// Nothing of the standard library may be compiled behind this line: other files would share its inline functions.
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdlib.h>
#include <string.h>
#pragma GCC target("avx2")
#define XXH_INLINE_ALL
#define XXH_VECTOR XXH_AVX2
#include <xxhash.h>

namespace drivetrain::sharded {

void digest_avx2(const void* data, size_t bytes, uint64_t out[2]) {
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  out[0] = hash.high64, out[1] = hash.low64;
}

}  // namespace drivetrain::sharded
#endif
