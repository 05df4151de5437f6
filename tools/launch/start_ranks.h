// Starting all ranks of a run: a port and a secret of their own, pipes for their output, and what each is told.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "launch/config_document.h"
#include "launch/core_binding.h"
#include "launch/guardian.h"
#include "launch/other_hosts.h"
#include "launch/place.h"
#include "launch/rank_setup.h"
#include "launch/rank_state.h"
#include "launch/restart_point.h"

namespace drivetrain::program {

struct RanksToStart {
  int count = 1;             // ranks of the run
  bool only_rank_0 = false;  // the others would do nothing
  std::vector<std::string> command;
  std::vector<std::string> environment = {};  // NAME=VALUE, beside what every rank is told
  // Who signals this process signals its ranks, too, as a scheduler does to all processes of a job: what came here is
  // not passed on, and what another launcher passes on waits a moment for it, since a second signal kills.
  bool signals_reach_ranks = false;
  Outlets* outlets = nullptr;  // for what ranks write; rank 0 inherits a file, or a terminal, as it is
  Place place = {};
  RankSetup setup = {};
  OtherHosts* others = nullptr;  // which get the output instead of `outlets`; null: there are none, or on their own
};

struct StartedRanks {
  std::unique_ptr<Guardian> guardian;
  std::vector<RankState> ranks;
  Descriptor news;               // what is written there reaches rank 0
  RestartPoints restart_points;  // from rank 0
};

// Fills `started` rank by rank, so that the caller can end those that run if one cannot be started: then it throws
// std::system_error.
void start_ranks(const RanksToStart& wanted, const ConfigDocument& config, const sigset_t* signal_mask,
                 StartedRanks& started);

}  // namespace drivetrain::program
