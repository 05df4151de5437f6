// What the ranks of every host get beside their numbers: where their output goes, and cores of their own.
#pragma once

#include <string>

namespace drivetrain::program {

struct RankSetup {
  std::string log_folder;          // --enable_each_rank_log; "": output is passed on
  std::string log_begin;           // how the logs' names begin: when the launch did
  bool logs_may_be_there = false;  // of an attempt before this one
  bool bind_cores = false;         // --bind_cores_to_rank
  std::string core_list;           // --bind_core_list; "": all that a host allows

  bool has_logs() const { return !log_folder.empty(); }
};

// Before any of `ranks` ranks of this host starts: makes the folder, and looks whether there are cores enough. Throws
// HostError.
void check_setup(const RankSetup& setup, int ranks);

}  // namespace drivetrain::program
