// A plugin library's manifest as values: who it is, what it offers, how it was built. Immutable; any thread.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "config/sections.h"  // KnownPlugin
#include "internal.h"

namespace drivetrain {

struct ManifestEntry {
  std::string kind, name, summary;
  std::string section;             // config section it claims; empty: none
  std::vector<std::string> types;  // further names for `type`
  std::string paper;               // where it was published: "Dao et al. 2022"; empty: nowhere, or it does not say
  std::string device;              // "cpu" or "cuda": the only one it works on; empty: any
  bool is_default = false;         // taken when the config names none of its kind
  bool uses_cuda = false;          // the device must be among its CUDA architectures
  // Of runs that go on without it or with other options (ROUNDING, SAME_BITS of drivetrain_add_plugin).
  bool rounding = false;
  std::vector<std::string> same_bits;
  SectionForm form{};  // how that section may be written
  std::string id() const { return kind + "/" + name; }
  KnownPlugin known() const { return {kind, name, section, types, is_default, device, form}; }
};

struct Manifest {
  std::string library, version, licence;
  std::vector<ManifestEntry> entries;
  Value fingerprint;
};

// Throws Error(plugin) with a phrase that continues "<file> ...": wrong magic line, not JSON, a field missing, no
// entries, an entry twice, an unknown kind, a section that cannot be claimed or whose forms are wrong.
DRIVETRAIN_INTERNAL Manifest parse_manifest(const std::string& text);

}  // namespace drivetrain
