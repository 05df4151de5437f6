// Starting the ranks of this host: pipes for their output, and what each is told.
#pragma once

#include <csignal>
#include <memory>
#include <vector>

#include "launch/config_document.h"
#include "launch/guardian.h"
#include "launch/launcher_channel.h"
#include "launch/orders.h"
#include "launch/rank_state.h"

namespace drivetrain::program {

struct StartedRanks {
  std::unique_ptr<Guardian> guardian;
  Descriptor news;            // what is written there reaches rank 0
  Descriptor restart_points;  // from rank 0
};

// `listener`: a socket for rank 0. Fills `ranks`, whose numbers are known, one by one, so that the caller can end those
// that run if one cannot be started: then it throws std::system_error or HostError. What they write goes to `launcher`.
void start_ranks(const StartOrder& order, const ConfigDocument& config, Descriptor listener,
                 const sigset_t* signal_mask, LauncherChannel& launcher, std::vector<RankState>& ranks,
                 StartedRanks& started);

}  // namespace drivetrain::program
