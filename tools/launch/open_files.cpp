#include "launch/open_files.h"

#include <sys/resource.h>

namespace drivetrain::program {

// The launcher has two pipes to each rank, rank 0 a socket to each; libraries, plugins, data, memory that ranks share
// and the run's files are a few dozen.
long open_files_wanted(int ranks) { return 48 + 2L * ranks; }

std::string make_room_for_open_files(int ranks) {
  const auto wanted = static_cast<rlim_t>(open_files_wanted(ranks));
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return "";
  const rlimit raised = {wanted, limit.rlim_max};
  if (limit.rlim_max >= wanted && setrlimit(RLIMIT_NOFILE, &raised) == 0) return "";
  const std::string number = std::to_string(wanted);
  return "launch: " + std::to_string(ranks) + (ranks == 1 ? " rank needs " : " ranks need ") + number +
         " open files per process, and " + std::to_string(limit.rlim_max) +
         " are allowed; raise the limit with `ulimit -n " + number +
         "`, or have it raised (`ulimit -Hn` shows how far you may)";
}

}  // namespace drivetrain::program
