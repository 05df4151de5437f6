// The tensors of another program, as a model's weight rules describe them. Several rules may share one. Any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <drivetrain/model.h>

#include "internal.h"

namespace drivetrain {

struct DRIVETRAIN_INTERNAL ForeignTensor {
  int64_t rows = 0;  // that hold something, in our orientation
  bool padded = false, transposed = false;
  AbsentRows absent = AbsentRows::refused;
  int64_t least = 0;  // rows that a file has where it may lack the last ones

  // Its shape without padding, where it holds rows of a parameter of the shape `ours`, which has a first dimension.
  std::vector<int64_t> shape(std::vector<int64_t> ours) const;
  // Of `found`, a shape of theirs.
  int64_t rows_of(const std::vector<int64_t>& found) const { return transposed ? found.back() : found.front(); }
  // Whether a tensor of the shape `found` can be it, and whether it can if none of its rows may be absent.
  bool fits(const std::vector<int64_t>& found, const std::vector<int64_t>& ours) const;
  bool fits_whole(const std::vector<int64_t>& found, const std::vector<int64_t>& ours) const;
};

// The name of a part's tensor as it is written, with the rules' prefix.
inline std::string written_name(const WeightRules& rules, const WeightPart& part) {
  return part.prefixed ? rules.prefix + part.name : part.name;
}

// Whether a tensor, with or without the rules' prefix, is one of those that hold no weights.
DRIVETRAIN_INTERNAL bool is_ignored(const WeightRules& rules, const std::string& name);

// By written name. Error(internal) for rules that contradict each other or have a part that lies nowhere.
DRIVETRAIN_INTERNAL std::map<std::string, ForeignTensor> foreign_tensors(const WeightRules& rules);

}  // namespace drivetrain
