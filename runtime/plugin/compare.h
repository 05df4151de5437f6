// Two fingerprints side by side. Every differing field is found at once, so that a rebuild cures all of them.
// Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "internal.h"

namespace drivetrain {

// One field of the fingerprint, as seen by both sides.
struct FieldVerdict {
  enum Level { same, note, warning, refusal } level;
  std::string field;            // "libtorch"
  std::string plugin, runtime;  // values as text
  std::string verdict;          // "must match", "differs, accepted", ""
};

// The machine this process runs on, as far as it matters to compiled code.
struct Machine {
  std::string cpu;    // "x86-64 avx avx2 ...", the words of fingerprint.h
  int cuda_arch = 0;  // compute capability as in sm_90; 0: no device in use
};
DRIVETRAIN_INTERNAL Machine this_machine();

DRIVETRAIN_INTERNAL const Value& runtime_fingerprint();  // how libdrivetrain.so was built

// The fingerprint of a library with the digests of those headers alone that its sources reach.
DRIVETRAIN_INTERNAL Value with_reached_headers(Value fingerprint, const std::vector<std::string>& headers);

// All fields, in the order of the fingerprint.
DRIVETRAIN_INTERNAL std::vector<FieldVerdict> compare_fingerprints(const Value& plugin, const Value& runtime,
                                                                   const Machine& machine, bool uses_cuda);

DRIVETRAIN_INTERNAL bool is_refused(const std::vector<FieldVerdict>& fields);

// The text of a refusal or of the long form: reason, file, the fields that differ (or all of them), remedy.
//   attention/flash refused: built for a different LibTorch
//     file        attention_flash.so (from DRIVETRAIN_PLUGIN_PATH, entry 1)
//     libtorch    plugin 2.10.0+cu12    runtime 2.11.0+cu13    must match
//     remedy      rebuild against this SDK ...
DRIVETRAIN_INTERNAL std::string refusal_text(const std::string& who, const std::string& file,
                                             const std::vector<FieldVerdict>& fields);
DRIVETRAIN_INTERNAL std::string field_lines(const std::vector<FieldVerdict>& fields, bool also_same);

}  // namespace drivetrain
