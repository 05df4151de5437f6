// What `drivetrain launch` is asked to start, and how long it waits for whom.
#pragma once

#include <unistd.h>

#include <string>
#include <vector>

#include "cli/arguments.h"
#include "launch/config_document.h"
#include "launch/deadlines.h"
#include "launch/hosts_request.h"
#include "launch/rank_setup.h"

namespace drivetrain::program {

struct LaunchRequest {
  int ranks = 1;
  std::vector<std::string> command;  // of every rank: program and arguments, without --resume
  std::vector<std::string>
      command_here;                      // the same for this host, where those of the run have copies; empty: as theirs
  std::string resume;                    // what --resume says; "": it was not given
  ConfigDocument config;                 // handed on where it can be read only once
  std::string config_path;               // as ranks are given it; "": there is none
  std::vector<std::string> other_files;  // that --deepspeed and --plugin-path name, as ranks are given them
  HostsRequest hosts;
  RankSetup setup;
  bool save_pid = false;
  bool only_rank_0 = false;    // the others would do nothing (`--plan`)
  int max_restarts = 0;        // in a row without a newer checkpoint
  int least_ranks = 0;         // that a restart may have; 0: as many as there are
  int most_ranks = 0;          // that there is room for on this host; 0: only `ranks`
  int least_hosts = 0;         // that a restart may have, with all their ranks; 0: as many as there are
  double first_pause_s = 0.2;  // before a restart; doubled each time
  double longest_pause_s = 5;
  Deadlines deadlines;
  int out = STDOUT_FILENO, err = STDERR_FILENO;  // where the output of other ranks than 0 and the report go
};

// `drivetrain train CONFIG ...` on -n ranks. Throws UsageError.
LaunchRequest launch_request(const cli::Arguments& arguments);

}  // namespace drivetrain::program
