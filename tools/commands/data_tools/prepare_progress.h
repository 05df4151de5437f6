// How far a preparation is, in a file beside its output: PREFIX.progress.json. Main thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "data_tools/prepare.h"
#include "data_tools/text_inputs.h"

namespace drivetrain {

struct PrepareProgress {
  InputPlace place;
  PrepareResult counts;   // documents, tokens, empty, broken
  bool complete = false;  // only the names of the files are missing
};

std::string progress_path(const std::string& prefix);
// Nothing if there is none. Error(config) naming the difference if it is that of another preparation than `identity`,
// and for a place that the inputs do not have.
std::optional<PrepareProgress> load_progress(const std::string& prefix, const Value& identity,
                                             const std::vector<TextInput>& inputs);
void save_progress(const std::string& prefix, const Value& identity, const PrepareProgress& progress);

}  // namespace drivetrain
