// This rank's columns of a batch, where ranks share its sequences.
#pragma once

#include <vector>

#include <drivetrain/strategy.h>

#include "internal.h"

namespace drivetrain {

// Tokens and labels at the positions that `cuts` leave, which the batch then names, its valid tokens counted anew.
// Without cuts: as it is.
DRIVETRAIN_INTERNAL Batch cut_batch(Batch batch, const std::vector<Builder::SequenceCut>& cuts);

}  // namespace drivetrain
