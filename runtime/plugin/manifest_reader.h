// What a file says about itself, read from its bytes. Nothing of the file is executed or mapped, so a broken or hostile
// file costs a message and no more. No state; any thread.
#pragma once

#include <string>
#include <vector>

#include "internal.h"

namespace drivetrain {

struct ManifestFile {
  std::string problem;               // empty, or why this is no plugin: "is truncated: ...", "is not an ELF file: ..."
  std::string manifest;              // text of the section, magic line included; empty if there is a problem
  std::vector<std::string> headers;  // of the contract, that its sources reach: "mesh.h"; ascending
  std::string build_id;              // hexadecimal; empty if the linker wrote none
};

// Never throws: every failure is a `problem`, a phrase that continues "<path> ...".
DRIVETRAIN_INTERNAL ManifestFile read_manifest(const std::string& path);

}  // namespace drivetrain
