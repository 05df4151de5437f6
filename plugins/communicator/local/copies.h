// Copies between buffers of ranks. glibc's memcpy chooses string instructions here, which reach a third of the speed of
// vector loads and stores between caches of two cores. Thread: any.
#pragma once

#include <cstdint>

namespace drivetrain::local {

// From here on a result does not stay in the caches anyway: writing past them saves reading the lines first.
constexpr int64_t kStreamBytes = 8 << 20;

// `out` and `in` are the same or do not overlap.
void copy_bytes(char* out, const char* in, int64_t bytes);
// Past the caches; other ranks see it after `end_of_stream`.
void stream_bytes(char* out, const char* in, int64_t bytes);
void end_of_stream();

}  // namespace drivetrain::local
