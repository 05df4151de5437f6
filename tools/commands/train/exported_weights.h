// What a folder of a run's weights consists of: the model's own with what strategies merge into them, and the folders
// of what strategies added. Main thread.
#pragma once

#include <vector>

#include "internal.h"
#include "plan/prepared_run.h"
#include "state/weights.h"

namespace drivetrain {

// `whole`: any parameter of the run, in float32. Collective where it is: every rank makes these calls and walks the
// rules of all sets in order. A set of the model comes first; without one there is at least another.
DRIVETRAIN_INTERNAL std::vector<ExportedWeights> exported_weights(const PreparedRun& run, const FetchParam& whole);

// The model's own, merged, whatever its strategies say of its export.
DRIVETRAIN_INTERNAL ExportedWeights merged_model(const PreparedRun& run, const FetchParam& whole);

// The folders of strategies, each below the folder that is written or that folder itself.
DRIVETRAIN_INTERNAL std::vector<ExportedWeights> added_weights(const PreparedRun& run, const FetchParam& whole);

}  // namespace drivetrain
