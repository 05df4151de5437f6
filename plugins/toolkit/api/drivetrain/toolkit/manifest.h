// The manifest of a plugin that is built without the CMake package: one line of the source instead of a generated file.
//
//   #include <drivetrain/toolkit/manifest.h>
//   DRIVETRAIN_MANIFEST("lr_schedule", "halving", "0.1.0", "MIT", "halves the rate every so many steps")
//   DRIVETRAIN_PLUGIN(drivetrain::LrSchedule, "halving", Halving)
//
//   g++ -O3 -DNDEBUG halving.cpp -o lr_schedule_halving.so $(pkg-config --cflags --libs drivetrain)
//
// One plugin per library, without a section of its own, CUDA or NCCL: drivetrain_add_plugin of the CMake package has
// those. Use once per library, in a source that is compiled with the flags of the others.
#pragma once

// Generated where this is installed: which LibTorch the library was built against.
#if __has_include(<drivetrain/toolkit/libtorch_build.h>)
#include <drivetrain/toolkit/libtorch_build.h>
#endif

#include <drivetrain/fingerprint.h>

namespace drivetrain::toolkit {

// Texts stand in JSON as they are.
consteval bool is_plain_text(const char* text) {
  for (; *text != '\0'; ++text)
    if (*text == '"' || *text == '\\' || static_cast<unsigned char>(*text) < 0x20) return false;
  return true;
}

}  // namespace drivetrain::toolkit

// All five are string literals.
#define DRIVETRAIN_MANIFEST(KIND, NAME, VERSION, LICENCE, SUMMARY)                                  \
  static_assert(drivetrain::toolkit::is_plain_text(KIND NAME VERSION LICENCE SUMMARY),              \
                "a manifest's texts have no quotes, backslashes or line breaks");                   \
  extern "C" {                                                                                      \
  extern __attribute__((visibility("hidden"))) const char drivetrain_manifest[];                    \
  __attribute__((section(".drivetrain.manifest"), used, retain)) const char drivetrain_manifest[] = \
      "DRIVETRAIN-MANIFEST 1\n"                                                                     \
      "{\"library\":\"" KIND "_" NAME "\",\"version\":\"" VERSION "\",\"licence\":\"" LICENCE       \
      "\",\"entries\":[{"                                                                           \
      "\"kind\":\"" KIND "\",\"name\":\"" NAME "\",\"summary\":\"" SUMMARY                          \
      "\"}],\"fingerprint\":" DRIVETRAIN_FINGERPRINT "}";                                           \
  }
