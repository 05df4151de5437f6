// How a library was built, as one JSON text that the preprocessor builds. It is compiled into the runtime and into
// every plugin's manifest. runtime/plugin/compare.cpp compares both before the library is opened, with one rule per
// field.
//
// `api` has a digest for every contract header. Only the headers that the plugin's sources include are compared; the
// library lists them in the section .drivetrain.headers (DRIVETRAIN_CONTRACT in export.h). A new header, or a change in
// a header that the plugin does not include, does not refuse the plugin.
//
// The build system defines what the compiler cannot know: api_digest.h (the digests, the SDK's release) and the
// DRIVETRAIN_LIBTORCH... macros. A library that is built without them has the value "unknown" there and is refused.
#pragma once

#include <cstddef>  // _GLIBCXX_ macros

#include <drivetrain/export.h>
#if __has_include(<drivetrain/api_digest.h>)
#include <drivetrain/api_digest.h>
#endif

DRIVETRAIN_CONTRACT(fingerprint)

#ifndef DRIVETRAIN_API_DIGESTS
#define DRIVETRAIN_API_DIGESTS ""
#define DRIVETRAIN_SDK_VERSION "unknown"
#endif
#ifndef DRIVETRAIN_LIBTORCH
#define DRIVETRAIN_LIBTORCH "unknown"
#define DRIVETRAIN_LIBTORCH_BUILD_ID "unknown"
#endif
#ifndef DRIVETRAIN_CUDA_RUNTIME
#define DRIVETRAIN_CUDA_RUNTIME 0  // major version of the CUDA runtime linked; 0: none
#endif
#ifndef DRIVETRAIN_NCCL
#define DRIVETRAIN_NCCL 0  // major version of NCCL linked; 0: none
#endif
#ifndef DRIVETRAIN_CUDA_ARCHITECTURES
#define DRIVETRAIN_CUDA_ARCHITECTURES ""  // "sm_90 sm_100 compute_100"
#endif

#define DRIVETRAIN_FP_STRING_(x) #x
#define DRIVETRAIN_FP_STRING(x) DRIVETRAIN_FP_STRING_(x)

// kDrivetrainEntryLayout of plugin.h, which would make every manifest read the whole SDK.
#define DRIVETRAIN_FP_ENTRY_LAYOUT 1

#ifdef _GLIBCXX_DEBUG
#define DRIVETRAIN_FP_CONTAINERS "debug"
#else
#define DRIVETRAIN_FP_CONTAINERS "plain"
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#elif __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define DRIVETRAIN_FP_SANITIZER "address"
#elif defined(__SANITIZE_THREAD__)
#define DRIVETRAIN_FP_SANITIZER "thread"
#else
#define DRIVETRAIN_FP_SANITIZER "none"
#endif

#ifdef __clang__
#define DRIVETRAIN_FP_COMPILER "clang " DRIVETRAIN_FP_STRING(__clang_major__) "." DRIVETRAIN_FP_STRING(__clang_minor__)
#else
#define DRIVETRAIN_FP_COMPILER "gcc " DRIVETRAIN_FP_STRING(__GNUC__) "." DRIVETRAIN_FP_STRING(__GNUC_MINOR__)
#endif

// The instruction sets that -march requires, as __builtin_cpu_supports names them. AVX-512 has four groups that were
// introduced by different processors.
#ifdef __AVX__
#define DRIVETRAIN_FP_AVX " avx"
#else
#define DRIVETRAIN_FP_AVX ""
#endif
#ifdef __AVX2__
#define DRIVETRAIN_FP_AVX2 " avx2"
#else
#define DRIVETRAIN_FP_AVX2 ""
#endif
#ifdef __FMA__
#define DRIVETRAIN_FP_FMA " fma"
#else
#define DRIVETRAIN_FP_FMA ""
#endif
#ifdef __AVX512F__
#define DRIVETRAIN_FP_AVX512F " avx512f"
#else
#define DRIVETRAIN_FP_AVX512F ""
#endif
#if defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define DRIVETRAIN_FP_AVX512X " avx512bw avx512dq avx512vl"
#else
#define DRIVETRAIN_FP_AVX512X ""
#endif
#ifdef __AVX512BF16__
#define DRIVETRAIN_FP_AVX512BF16 " avx512bf16"
#else
#define DRIVETRAIN_FP_AVX512BF16 ""
#endif
#ifdef __AVX512VNNI__
#define DRIVETRAIN_FP_AVX512VNNI " avx512vnni"
#else
#define DRIVETRAIN_FP_AVX512VNNI ""
#endif
#if defined(__x86_64__)
#define DRIVETRAIN_FP_MACHINE "x86-64"
#elif defined(__aarch64__)
#define DRIVETRAIN_FP_MACHINE "aarch64"
#else
#define DRIVETRAIN_FP_MACHINE "other"
#endif
#define DRIVETRAIN_FP_CPU                                                                            \
  DRIVETRAIN_FP_MACHINE DRIVETRAIN_FP_AVX DRIVETRAIN_FP_AVX2 DRIVETRAIN_FP_FMA DRIVETRAIN_FP_AVX512F \
      DRIVETRAIN_FP_AVX512X DRIVETRAIN_FP_AVX512BF16 DRIVETRAIN_FP_AVX512VNNI

// The whole fingerprint: one JSON object. Differences are reported in this order.
// clang-format off
#define DRIVETRAIN_FINGERPRINT                                                     \
  "{\"door\":" DRIVETRAIN_FP_STRING(DRIVETRAIN_FP_ENTRY_LAYOUT)                            \
  ",\"api\":{" DRIVETRAIN_API_DIGESTS "}"                                          \
  ",\"libtorch\":\"" DRIVETRAIN_LIBTORCH "\""                                      \
  ",\"libtorch_build_id\":\"" DRIVETRAIN_LIBTORCH_BUILD_ID "\""                    \
  ",\"cxx11_abi\":" DRIVETRAIN_FP_STRING(_GLIBCXX_USE_CXX11_ABI)                   \
  ",\"compiler_abi\":" DRIVETRAIN_FP_STRING(__GXX_ABI_VERSION)                     \
  ",\"containers\":\"" DRIVETRAIN_FP_CONTAINERS "\""                               \
  ",\"sanitizer\":\"" DRIVETRAIN_FP_SANITIZER "\""                                 \
  ",\"cuda_runtime\":" DRIVETRAIN_FP_STRING(DRIVETRAIN_CUDA_RUNTIME)               \
  ",\"nccl_major\":" DRIVETRAIN_FP_STRING(DRIVETRAIN_NCCL)                               \
  ",\"cuda_architectures\":\"" DRIVETRAIN_CUDA_ARCHITECTURES "\""                  \
  ",\"cpu\":\"" DRIVETRAIN_FP_CPU "\""                                             \
  ",\"sdk\":\"" DRIVETRAIN_SDK_VERSION "\""                                        \
  ",\"compiler\":\"" DRIVETRAIN_FP_COMPILER "\""                                   \
  ",\"libstdcxx\":\"" DRIVETRAIN_FP_STRING(_GLIBCXX_RELEASE) "\"}"
// clang-format on
