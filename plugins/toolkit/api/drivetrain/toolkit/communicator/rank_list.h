// Lists of ranks for error messages. Thread: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace drivetrain::toolkit {

// "rank 1", "ranks 0, 2 and 3"
std::string rank_list(const std::vector<int64_t>& ranks);

}  // namespace drivetrain::toolkit
