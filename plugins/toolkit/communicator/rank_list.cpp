#include <drivetrain/toolkit/communicator/rank_list.h>

#include <drivetrain/error.h>

namespace drivetrain::toolkit {

std::string rank_list(const std::vector<int64_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += concat(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return text;
}

}  // namespace drivetrain::toolkit
