// `drivetrain checkpoint show`: what one checkpoint holds. Main thread.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "checkpoint_tools/stored_run.h"
#include "internal.h"

namespace drivetrain {

// Everything but values: facts, names and sizes of the tensors.
DRIVETRAIN_INTERNAL std::string show_text(const StoredRun& run, const StoredTag& tag);
DRIVETRAIN_INTERNAL Value show_value(const StoredRun& run, const StoredTag& tag);

// Values of the tensors that `pattern` names: one exactly, or all that fit it as a shell's pattern, in which "*" also
// stands for "/". Error(config) if there is none, with the name that was likely meant.
DRIVETRAIN_INTERNAL std::vector<StoredTensor> tensors_named(const Checkpoint& checkpoint, const std::string& pattern,
                                                            const std::string& where);
DRIVETRAIN_INTERNAL std::string show_tensors_text(const StoredRun& run, const StoredTag& tag,
                                                  const std::string& pattern);
DRIVETRAIN_INTERNAL Value show_tensors_value(const StoredRun& run, const StoredTag& tag, const std::string& pattern);

}  // namespace drivetrain
