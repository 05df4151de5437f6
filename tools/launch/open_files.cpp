#include "launch/open_files.h"

#include <sys/resource.h>

namespace drivetrain::program {

// The launcher has two pipes to each rank and three to each host's ssh, rank 0 a socket to each rank; libraries,
// plugins, data, memory that ranks share and the run's files are a few dozen.
long open_files_wanted(int ranks, size_t hosts) { return 48 + 2L * ranks + 3 * static_cast<long>(hosts); }

std::string make_room_for_open_files(int ranks, size_t hosts) {
  const auto wanted = static_cast<rlim_t>(open_files_wanted(ranks, hosts));
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return "";
  const rlimit raised = {wanted, limit.rlim_max};
  if (limit.rlim_max >= wanted && setrlimit(RLIMIT_NOFILE, &raised) == 0) return "";
  const std::string number = std::to_string(wanted);
  const auto counted = [](size_t n, const char* one) { return std::to_string(n) + one + (n == 1 ? "" : "s"); };
  std::string who = ranks > 0 ? counted(static_cast<size_t>(ranks), " rank") : "";
  if (hosts > 0) who += (who.empty() ? "" : " on ") + counted(hosts, " host");
  return who + ": each process needs " + number + " open files, and " + std::to_string(limit.rlim_max) +
         " are allowed; raise the limit with `ulimit -n " + number +
         "`, or have it raised (`ulimit -Hn` shows how far you may)";
}

}  // namespace drivetrain::program
