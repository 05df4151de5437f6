// Beside which weights of the model a strategy's parameters were trained: written into the files that hold them, and
// compared where such a file is read. Main thread.
#pragma once

#include <string>
#include <vector>

#include "formats/frozen_base.h"
#include "internal.h"
#include "run/run.h"
#include "state/weights.h"

namespace drivetrain {

// The Hugging Face folder that the run's weights came from, with its digest; no folder: they came from elsewhere.
DRIVETRAIN_INTERNAL FrozenBase base_of(const Run& run);

// Says so in the files of strategies; a config there gets the name of the folder, as Hugging Face's libraries have it,
// unless it has one. Without a folder nothing is said.
DRIVETRAIN_INTERNAL void name_base(std::vector<ExportedWeights>& sets, const FrozenBase& base);

// That the files which a run's strategies have read were trained with the weights of this run, by their values: Error
// (config) naming both. Where a file or the run does not say, the log has one line. `run`: built. `place`: the folder
// that they were read from; empty: WeightFolder::from.
DRIVETRAIN_INTERNAL void check_bases(Run& run, const std::string& place);

}  // namespace drivetrain
