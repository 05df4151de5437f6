// Finds the rank that blocks a run, from one report per rank: a rank without a report, one whose collectives differ
// from the others', or one that has not reached the collective that the others wait in.
// Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "internal.h"
#include "watch/picture.h"

namespace drivetrain {

struct FlightVerdict {
  std::string text;               // one line for people
  std::vector<int64_t> culprits;  // ascending; empty where the pictures name nobody
  bool different_calls = false;   // ranks disagree about a collective: it can never end
  bool all_wait = false;          // nobody is behind the others
};

// pictures[r]: of rank r; nothing: it did not answer. hosts[r]: its host, as far as it is known.
DRIVETRAIN_INTERNAL FlightVerdict find_culprit(const std::vector<std::optional<RankPicture>>& pictures,
                                               const std::vector<std::string>& hosts);

// Ranks give their pictures up to a second apart. Where one of them has moved since the first was made, what the others
// wait in says nothing: this says how far they are, "ranks 0-2 go on, at step 41; rank 3 goes on, at step 40".
// Nothing where every rank is quiet, or where one did not answer.
DRIVETRAIN_INTERNAL std::optional<std::string> text_of_a_run_that_goes_on(
    const std::vector<std::optional<RankPicture>>& pictures);

// The same for a run that is over, from the records of all its ranks, in their order. Who ended first need not be
// behind in any call: then it is the one whose calls did not fail for want of another rank.
DRIVETRAIN_INTERNAL FlightVerdict find_culprit(const std::vector<LeftRecord>& records);

}  // namespace drivetrain
