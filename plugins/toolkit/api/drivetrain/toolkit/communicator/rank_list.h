// Lists of ranks for error messages. Thread: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <drivetrain/error.h>

namespace drivetrain::toolkit {

// "rank 1", "ranks 0, 2 and 3"
inline std::string rank_list(const std::vector<int64_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += concat(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return text;
}

}  // namespace drivetrain::toolkit
