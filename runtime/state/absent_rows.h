// Rows that the tensors of a file do not have and a parameter does (WeightPart::absent). Main thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include <drivetrain/weight_rules.h>

#include "internal.h"
#include "state/weight_source.h"

namespace drivetrain {

// A parameter whose last rows of a tensor are not in the file.
struct AddedRows {
  std::string param;
  int64_t read = 0, added = 0;  // rows of that tensor
  AbsentRows start = AbsentRows::refused;
};

// In the order of the rules. Of tensors that fit (ForeignTensor::fits).
DRIVETRAIN_INTERNAL std::vector<AddedRows> added_rows(const WeightSource& file, const WeightRules& rules);

// The name of a part's tensor in a file, with or without the rules' prefix; empty if it is not there.
std::string name_in(const WeightSource& file, const WeightRules& rules, const WeightPart& part);

// How many rows of a part the file has.
int64_t rows_there(const WeightSource& file, const std::string& name, bool transposed, const WeightPart& part);

// The mean of all rows that the parts of `rule` have in one tensor, in float32: a sum in float64, row after row, so
// that every rank computes the same bits.
at::Tensor mean_row(const WeightSource& file, const std::string& name, const WeightRule& rule,
                    const std::vector<std::string>& names);

}  // namespace drivetrain
