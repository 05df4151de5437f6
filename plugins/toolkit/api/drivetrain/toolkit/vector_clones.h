// Marks a free function to be compiled once per vector width and chosen at run time by the CPU it runs on:
//
//   DRIVETRAIN_VECTOR_CLONES void add(float* a, const float* b, int64_t n) { ... }
#pragma once

// Resolvers of clones run before a sanitizer is ready, so its builds do without.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define DRIVETRAIN_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define DRIVETRAIN_VECTOR_CLONES
#endif
