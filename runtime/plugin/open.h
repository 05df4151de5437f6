// From a file that passed every check to an open library. Libraries are shared by all ranks and registries of a process
// and never closed: graphs hold their vtables, tensors their deleters, pool threads may sit in a callback. The shelf
// that holds them is leaked on purpose, so no static destructor runs into unmapped code. Thread: any; openings are
// serialised.
#pragma once

#include <memory>
#include <string>

#include <drivetrain/options.h>
#include <drivetrain/plugin.h>

#include "internal.h"
#include "plugin/discover.h"

namespace drivetrain {

struct OpenLibrary {
  std::shared_ptr<const PluginFile> file;
  const DrivetrainDescriptor* descriptor = nullptr;
  std::shared_ptr<const void> handle;  // keeps the library open

  const DrivetrainEntry* find(const std::string& kind, const std::string& name) const;
};

// Opens with RTLD_NOW and RTLD_LOCAL, so that a missing symbol is an error here and not a crash later, and plugins do
// not see each other's symbols. Then checks magic, sizes, door, and that the entries equal the manifest's. Throws
// Error(plugin), also for a file that was refused before.
DRIVETRAIN_INTERNAL std::shared_ptr<const OpenLibrary> open_library(const std::shared_ptr<const PluginFile>& file);

}  // namespace drivetrain
