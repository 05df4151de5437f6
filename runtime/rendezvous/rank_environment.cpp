// Who am I? Reads the variables of the launchers we know.
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <drivetrain/error.h>

#include "base/rank_variables.h"
#include "rendezvous/rendezvous.h"

namespace drivetrain {
namespace {

// The names one launcher uses; null where it has none. `start`: what starts all ranks of such a run.
struct LauncherVariables {
  const char *rank, *world_size, *local_rank, *local_size, *start;
};
constexpr const char* kUnset = ", or unset these variables for one process";
// In order of preference. SLURM's step variables before the job's: inside a batch script without srun only the latter
// exist.
constexpr LauncherVariables kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
     "start all of them, by `drivetrain launch` or each with its RANK"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
     "start all of them by `mpirun drivetrain train` or `drivetrain launch`"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
     "start all of them by `mpirun drivetrain train`, `srun drivetrain train` or `drivetrain launch`"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr,
     "start all of them by `srun drivetrain train` or `drivetrain launch`"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr,
     "a batch script runs once and not once for each task: start all of them by `srun drivetrain train` or `drivetrain "
     "launch`"},
};

class Variables {
 public:
  explicit Variables(const Lookup& lookup) : lookup_(lookup), start_(RankStart::read(lookup)) {}

  const RankStart& start() const { return start_; }  // of `drivetrain launch`
  // Set and not empty.
  std::optional<std::string> text(const char* name) const {
    const char* value = name == nullptr ? nullptr : lookup_(name);
    return value == nullptr || *value == 0 ? std::nullopt : std::optional<std::string>(value);
  }

  std::optional<int64_t> integer(const char* name, int64_t minimum, int64_t maximum) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    int64_t number = 0;
    const char* end = value->data() + value->size();
    const auto [stop, failed] = std::from_chars(value->data(), end, number);
    if (failed != std::errc() || stop != end || number < minimum || number > maximum)
      throw fail(ErrorCode::config, "environment variable ", name, "=", *value, ": wanted an integer from ", minimum,
                 " to ", maximum);
    return number;
  }

 private:
  const Lookup& lookup_;
  const RankStart start_;
};

constexpr int64_t kMostRanks = 1 << 20;

void check_below(const char* name, int64_t value, const char* limit_name, int64_t limit) {
  if (value >= limit)
    throw fail(ErrorCode::config, "environment variables ", name, "=", value, " and ", limit_name, "=", limit,
               " contradict each other: ranks count from 0 to ", limit - 1);
}

// Two launchers that both count this process, and count alike, have to call it the same. `drivetrain launch` may be one
// of several processes of an MPI and start ranks of its own: its word holds.
void check_other_launchers(const Variables& variables, const LauncherVariables& names, const RankEnvironment& env) {
  if (variables.start().master_listens) return;
  const auto contradict = [&](const std::string& other, int64_t rank) {
    throw fail(ErrorCode::config, "environment variables ", names.rank, "=", env.rank, " and ", other, "=", rank,
               " contradict each other: two launchers of ", env.world_size,
               " ranks call this process by different ranks; unset the variables of the one that did not start it");
  };
  for (const LauncherVariables& other : kLaunchers) {
    const bool of_mpi =
        std::string_view(other.rank).find("SLURM") == std::string_view::npos;  // whose tasks may be nodes
    if (!of_mpi || std::strcmp(other.rank, names.rank) == 0) continue;
    const auto rank = variables.integer(other.rank, 0, kMostRanks);
    const auto size = variables.integer(other.world_size, 1, kMostRanks);
    if (rank && size && *size == env.world_size && *rank != env.rank) contradict(other.rank, *rank);
  }
  const auto pmix = variables.integer("PMIX_RANK", 0, kMostRanks);
  if (names.rank != kLaunchers[0].rank && pmix && *pmix != env.rank) contradict("PMIX_RANK", *pmix);
}

void read_local(const Variables& variables, const LauncherVariables& names, RankEnvironment& env) {
  const auto local_rank = variables.integer(names.local_rank, 0, kMostRanks);
  const auto local_size = variables.integer(names.local_size, 1, kMostRanks);
  env.local_known = local_rank && local_size;
  if (local_rank) check_below(names.local_rank, *local_rank, names.world_size, env.world_size);
  if (local_size) check_below(names.local_size, *local_size - 1, names.world_size, env.world_size);
  if (!env.local_known) return;
  check_below(names.local_rank, *local_rank, names.local_size, *local_size);
  env.local_rank = *local_rank;
  env.local_size = *local_size;
}

constexpr size_t kShortestToken = 16;

// Whoever knows it can join; it is never told.
void read_token(const Variables& variables, RankEnvironment& env) {
  env.token = variables.start().token;
  if (!env.token.empty() && env.token.size() < kShortestToken)
    throw fail(ErrorCode::config, "environment variable ", RankStart::kToken, " has ", env.token.size(),
               " characters: wanted at least ", kShortestToken,
               " that nobody can guess, the same for all ranks (openssl rand -hex 32)");
}

// A port of our own choice might be another run's, so that one is shown by rank 0 where nobody named one.
void read_master(const Variables& variables, const LauncherVariables& names, RankEnvironment& env) {
  const auto address = variables.text("MASTER_ADDR");
  const auto slurm_address = variables.text("SLURM_LAUNCH_NODE_IPADDR");
  // `drivetrain launch` has said how many ranks there are because its user did.
  if (!variables.start().master_listens)
    env.said_by = concat(names.world_size, "=", env.world_size, " and ", names.rank, "=", env.rank),
    env.start_by = concat(names.start, kUnset);
  if (address)
    env.master_addr = *address;
  else if (slurm_address)
    env.master_addr = *slurm_address;
  else if (!env.local_known || env.local_size != env.world_size)
    throw fail(ErrorCode::config, "environment variable MASTER_ADDR is not set: with ", env.world_size,
               " ranks every one needs the host name of rank 0 there (127.0.0.1 if all run on this host)",
               who_said(env));
  else if (!variables.text("MASTER_PORT") && names.rank != kLaunchers[0].rank)
    env.launcher_rank_variable = names.rank;
  env.master_port = variables.integer("MASTER_PORT", 1, 65535).value_or(env.master_port);
  read_token(variables, env);
  env.master_listens = variables.start().master_listens.value_or(false);
  if (env.rank == 0) env.listen_fd = variables.start().listen_fd, env.news_fd = variables.start().news_fd;
  const bool loopback =
      env.master_addr == "localhost" || env.master_addr == "::1" || env.master_addr.rfind("127.", 0) == 0;
  if (!env.local_known && loopback) env.local_rank = env.rank, env.local_size = env.world_size, env.local_known = true;
}

}  // namespace

std::string who_said(const RankEnvironment& env) {
  if (env.said_by.empty()) return "";
  return concat("\n   ", env.said_by, " say that this is rank ", env.rank, " of ", env.world_size, "; ", env.start_by);
}

RankEnvironment read_rank_environment(const Lookup& lookup) {
  const Variables variables(lookup);
  RankEnvironment env;
  for (const LauncherVariables& names : kLaunchers) {
    const auto world_size = variables.integer(names.world_size, 1, kMostRanks);
    const auto rank = variables.integer(names.rank, 0, kMostRanks);
    if (!rank && !world_size) continue;
    const bool own_names = names.rank == kLaunchers[0].rank;
    if (!rank || !world_size) {
      // Others' variables also stand in shells and batch scripts that start no ranks.
      if (!own_names) continue;
      throw fail(ErrorCode::config, "environment variable ", rank ? names.rank : names.world_size, "=",
                 rank ? *rank : *world_size, " is set but ", rank ? names.world_size : names.rank,
                 " is not: set both, or neither for one process");
    }
    check_below(names.rank, *rank, names.world_size, *world_size);
    env.rank = *rank;
    env.world_size = *world_size;
    check_other_launchers(variables, names, env);
    read_local(variables, names, env);
    if (env.world_size > 1)
      read_master(variables, names, env);
    else
      env.local_rank = 0, env.local_size = 1, env.local_known = true;
    return env;
  }
  if (const auto rank = variables.text("PMIX_RANK"))
    throw fail(
        ErrorCode::config, "environment variable PMIX_RANK=", *rank,
        " says that a launcher started several ranks, and none says how many: set RANK and WORLD_SIZE (0 and 1 for "
        "one process)");
  return env;
}

RankEnvironment read_rank_environment() {
  static std::string token;  // for those who ask again
  if (const char* given = std::getenv(RankStart::kToken)) {
    token = given;
    unsetenv(RankStart::kToken);
  }
  return read_rank_environment([](const char* name) -> const char* {
    return std::strcmp(name, RankStart::kToken) == 0 ? token.c_str() : std::getenv(name);
  });
}

}  // namespace drivetrain
