// What one rank writes in a save: its data file and its index.
#pragma once

#include <cstdint>
#include <string>

#include <drivetrain/checkpoint_store.h>
#include <drivetrain/toolkit/files/file_calls.h>

#include "manifest.h"

namespace drivetrain::sharded {

// Both files and their names in `folder` are on the disk when it returns. Frees the data of each slice as soon as it is
// written. Error(internal) for a slice that does not fit its description; Error(io).
RankFiles write_rank(FileCalls& calls, const std::string& folder, uint64_t chunk_bytes, Snapshot& snapshot);

// What the header of a data file says about the save that it belongs to. Error(config) if there is no such header.
// `head`: the first bytes of the file, at least those of its header.
SaveIdentity identity_in_header(const std::string& head);

}  // namespace drivetrain::sharded
