// The types of a run: what its precision says, and over it what the configuration asks for. Main thread.
#pragma once

#include "plan/composition.h"

namespace drivetrain {

// Id of the chosen precision ("precision/..."); empty without one.
std::string id_of_precision(const Composition& run);

// Sets Services::dtypes and RunFacts::compute_dtype, before anyone plans or allocates. Error(config) for types that do
// not go together.
void settle_dtypes(Composition& run);

}  // namespace drivetrain
