// Compiles a file-local function once per vector width (512, 256, 128 bits); the CPU it runs on chooses. Helpers that
// it calls in its loops must be inlined into it:
//
//   DRIVETRAIN_INLINE float twice(float x) { return x + x; }
//   DRIVETRAIN_VECTOR_CLONES void add(float* a, const float* b, int64_t n) { for (...) a[i] += twice(b[i]); }
#pragma once

#define DRIVETRAIN_INLINE inline __attribute__((always_inline))

// Resolvers of clones run before a sanitizer is ready, so its builds do without.
#ifndef DRIVETRAIN_VECTOR_CLONES
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define DRIVETRAIN_VECTOR_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DRIVETRAIN_VECTOR_CLONES
#endif
#endif
