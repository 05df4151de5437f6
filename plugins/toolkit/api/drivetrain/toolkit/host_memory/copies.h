// Copies between buffers of ranks, at the speed of caches that are not one's own.
//
// glibc's memcpy chooses string instructions here, which reach a third of the speed of vector loads and stores. A line
// that one core has written and another reads is passed from cache to cache, which takes five times as long as writing
// it past the caches and reading it from memory: what is written for a peer is streamed. Thread: any.
#pragma once

#include <cstdint>

namespace drivetrain::toolkit::host_memory {

// From here on a result does not stay in the caches anyway.
constexpr int64_t kStreamBytes = 8 << 20;

// `out` and `in` are the same or do not overlap.
void copy_bytes(char* out, const char* in, int64_t bytes);
// The same for a peer to read; it does after `end_of_stream`.
void stream_bytes(char* out, const char* in, int64_t bytes);
void end_of_stream();

}  // namespace drivetrain::toolkit::host_memory
