// The parts of a study file that name keys and levels. Each throws Error(config) with the place of what is wrong.
#pragma once

#include <drivetrain/error.h>

#include "study/study_file.h"

namespace drivetrain::study {

Error wrong(const Value& at, const std::string& message);      // the place is the value's
Error wrong_key(const Value& at, const std::string& message);  // the place is its key's
std::string shown_value(const Value& value);                   // JSON on one line, shortened

std::vector<Change> changes_of(const Value& object, const std::string& where);  // {"a.b": 1}, also nested objects' keys
std::vector<std::string> environment_of(const Value& object);
std::vector<Factor> factors_of(const Value& factors);
std::vector<int> reference_of(const Value& reference, const std::vector<Factor>& factors);
std::vector<Row> rows_of(const Value& rows, const std::vector<Factor>& factors);
std::vector<Constraint> constraints_of(const Value& list, const std::vector<Factor>& factors);

}  // namespace drivetrain::study
