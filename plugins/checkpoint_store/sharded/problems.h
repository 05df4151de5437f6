// What can be seen of damage without reading data files: manifests, and the sizes of the files that they list. Main
// thread.
#pragma once

#include <vector>

#include <drivetrain/checkpoint_store.h>

#include "place.h"

namespace drivetrain::sharded {

// Damaged and incomplete tags, sorted by tag, then folders of what has not ended. Error(io) if a file cannot be read.
std::vector<StoreProblem> problems_in(const Place& place);

}  // namespace drivetrain::sharded
