// Marks a free function that is compiled once per vector width; the dynamic linker chooses by the CPU:
//
//   DRIVETRAIN_VECTOR_CLONES void add(float* a, const float* b, int64_t n) { ... }
#pragma once

// The functions that choose run before a sanitizer is initialised, so sanitizer builds have one version only.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define DRIVETRAIN_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define DRIVETRAIN_VECTOR_CLONES
#endif
