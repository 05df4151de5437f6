// On how many fewer ranks a run can go on: the program itself is asked, with the config at hand.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launch/request.h"
#include "launch/signal_watch.h"

namespace drivetrain::program {

// What `train --plan` says of a number of ranks.
struct PlanAnswer {
  std::string refusal{};  // why it does not work, one line; "": it does
  int64_t sequences = 0;  // of the global batch; 0: it did not say
  int signal = 0;         // that ended the question; 0: none
};
using AskPlan = std::function<PlanAnswer(int ranks)>;

struct FewerRanks {
  int ranks = 0;        // the first number that works; 0: none does
  std::string refused;  // those before it: "3 ranks: why; 2 ranks: why"
  int signal = 0;
};
// The first of these numbers that has the plan, and the global batch, of the `now` ranks of the run so far.
FewerRanks fewer_ranks(int now, const std::vector<int>& choices, const AskPlan& ask);

// By a process of its own. For a process whose children are all its own, while no ranks run.
PlanAnswer ask_plan(const LaunchRequest& request, int ranks, SignalWatch& signals);

}  // namespace drivetrain::program
