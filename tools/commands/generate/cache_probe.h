// Whether a model computes the same through the key/value cache. Main thread.
#pragma once

#include <string>

#include "generate/inference.h"
#include "internal.h"

namespace drivetrain {

// Why not; empty: it does. A model may be anybody's, and one that looks at earlier positions by something else than
// attention, or takes positions from somewhere else than the batch, would give other texts without a word. So two texts
// of a few tokens and of unequal lengths are computed both ways: units that refuse the cache, a block that keeps
// nothing there, and logits that differ are reasons.
DRIVETRAIN_INTERNAL std::string why_no_cache(Inference& model);

}  // namespace drivetrain
