// Whose fault it is that a run does not go on, from the pictures of its ranks: who gave none, whose calls differ from
// the others', and who is behind in a call that others wait in without waiting for anybody itself.
// Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "flight/picture.h"
#include "internal.h"

namespace drivetrain {

struct FlightVerdict {
  std::string text;               // one line for people
  std::vector<int64_t> culprits;  // ascending; empty where the pictures name nobody
  bool different_calls = false;   // ranks disagree about a collective: it can never end
};

// pictures[r]: of rank r; nothing: it did not answer. hosts[r]: its host, as far as it is known.
DRIVETRAIN_INTERNAL FlightVerdict find_culprit(const std::vector<std::optional<RankPicture>>& pictures,
                                               const std::vector<std::string>& hosts);

}  // namespace drivetrain
