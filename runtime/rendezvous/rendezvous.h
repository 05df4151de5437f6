// How the ranks of a run find each other: who am I (environment), the store all share, is everybody there, and does
// everybody run the same thing. Nothing here moves tensors.
//
// Thread: main. Errors: Error(config) for variables, duplicate ranks and differing facts; Error(communication) naming
// the ranks that did not come, or the address that did not answer.
#pragma once

#include <drivetrain/error.h>
#include <drivetrain/store.h>
#include <drivetrain/value.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "internal.h"

namespace drivetrain {

struct RankEnvironment {
  int64_t rank = 0, world_size = 1;
  int64_t local_rank = 0, local_size = 1;  // among the ranks of this host
  bool local_known = true;                 // false: local_* are for one rank per host until find_local_ranks
  std::string master_addr = "127.0.0.1";
  int64_t master_port = 29500;
  int listen_fd = -1;           // on rank 0: a listening socket inherited from the launcher, bound to master_port
  int news_fd = -1;             // on rank 0: a pipe in which the launcher names each rank that failed
  bool master_listens = false;  // that socket was there before any rank: where it refuses, rank 0 has ended
  // The run's secret; empty: nobody gave one, so rank 0 makes one and shows it to its user's processes.
  std::string token{};
  // The environment variable in which the launcher gives the rank, if all ranks are on this host and no port is given;
  // else empty.
  std::string launcher_rank_variable{};
  // Of several ranks: the variables that said so, and how all ranks of such a launcher are started. Empty under
  // `drivetrain launch`, whose user said it.
  std::string said_by{}, start_by{};
};

// A line for errors that depend on how many ranks there are: "\n   SLURM_NTASKS=8 and SLURM_PROCID=0 say that this is
// rank 0 of 8; start all of them by ..."; empty where there is nothing to say.
DRIVETRAIN_INTERNAL std::string who_said(const RankEnvironment& env);

// The value of an environment variable, or null.
using Lookup = std::function<const char*(const char* name)>;

// RANK and WORLD_SIZE (with LOCAL_RANK and LOCAL_WORLD_SIZE), else Open MPI's, PMI's (MPICH's mpirun) or SLURM's
// variables, else one process; with any of them MASTER_ADDR, MASTER_PORT and DRIVETRAIN_RUN_TOKEN, and what `drivetrain
// launch` adds: DRIVETRAIN_MASTER_LISTENS and, for rank 0, DRIVETRAIN_LISTEN_FD and DRIVETRAIN_NEWS_FD. Errors name the
// variable and its value, but for the token's; two launchers that call this process by different ranks are one.
DRIVETRAIN_INTERNAL RankEnvironment read_rank_environment(const Lookup& lookup);
// Of this process, whose children do not inherit the token: it is taken out of the environment. Before there are other
// threads.
DRIVETRAIN_INTERNAL RankEnvironment read_rank_environment();

// Its share of those that this process may run on, or, where `launch --bind_cores_to_rank` gave it cores of its own and
// their number in DRIVETRAIN_BOUND_CORES, those.
DRIVETRAIN_INTERNAL int64_t cores_of_rank(const RankEnvironment& env);

// In-memory: one process, or ranks that are threads and share the pointer.
DRIVETRAIN_INTERNAL std::shared_ptr<Store> make_local_store();

// For one rank a local store; otherwise one that rank 0 serves to whoever proves to know the run's secret. Returns at
// once: rank 0 listens from now on, others look for it meanwhile. `warn`: takes a line about where rank 0 listens.
// Destroying rank 0's waits up to a second for the others to leave, so that they read the last word.
// From here on a rank that dies, or leaves by an exception, ends every wait of the others at once, with the reason.
DRIVETRAIN_INTERNAL std::shared_ptr<Store> open_store(const RankEnvironment& env,
                                                      const std::function<void(const std::string&)>& warn = {});
// The key `drivetrain/address/RANK` then holds the address by which RANK reaches rank 0, and so by which ranks of other
// hosts reach it; that of rank 0 is the one by which other hosts reach it. Communicators listen there.
// Waits up to timeout_s until rank 0 has let this rank in; calls without a time of their own may then take as long.
DRIVETRAIN_INTERNAL void enter_store(Store& store, double timeout_s);
// Both.
DRIVETRAIN_INTERNAL std::shared_ptr<Store> make_store(const RankEnvironment& env, double timeout_s,
                                                      const std::function<void(const std::string&)>& warn = {});

// Ends every wait in the store for what is not there yet, on all ranks, with this reason; the first one holds.
DRIVETRAIN_INTERNAL void stop_run(Store& store, const std::string& reason) noexcept;
// Runs `body`; what it throws becomes the reason that the others hear.
template <class Body>
auto telling_others(Store& store, const RankEnvironment& env, const Body& body) {
  try {
    return body();
  } catch (const std::exception& e) {
    const std::string text = e.what();
    stop_run(store, concat("rank ", env.rank, " stopped: ", text.substr(0, text.find('\n'))));
    throw;
  }
}
// What this rank is doing ("building the model"), for the others' message if it dies meanwhile.
DRIVETRAIN_INTERNAL void set_activity(Store& store, const RankEnvironment& env, const std::string& what);

// What the keys key_of(rank) hold, for `ranks` in their order. Error(communication) after timeout_s in all: "ranks 2
// and 3 did not <do> within 60 s".
DRIVETRAIN_INTERNAL std::vector<std::string> values_of_ranks(Store& store, const std::vector<int64_t>& ranks,
                                                             const std::function<std::string(int64_t rank)>& key_of,
                                                             const std::string& wanted, double timeout_s);

// Fills local_rank and local_size by host names if the environment did not say. Called by all ranks.
DRIVETRAIN_INTERNAL void find_local_ranks(Store& store, RankEnvironment& env, double timeout_s);

// Returns when all ranks have called it; otherwise every rank that did throws and names those that did not.
DRIVETRAIN_INTERNAL void check_arrival(Store& store, const RankEnvironment& env, double timeout_s);

// Compares what the ranks say about themselves (configuration, libraries). Every rank throws the same error if any
// differs from rank 0: the ranks, the first differing key and both values. After check_arrival, once per store.
DRIVETRAIN_INTERNAL void check_same(Store& store, const RankEnvironment& env, const Value& facts,
                                    double timeout_s = 60);

// The first place, in a's order, where two values differ: path ("optimizer.params.betas[1]") and both sides as JSON
// ("absent" where there is none). Nothing if they are equal; the order of keys does not matter.
struct Difference {
  std::string path, a, b;
};
DRIVETRAIN_INTERNAL std::optional<Difference> first_difference(const Value& a, const Value& b);

}  // namespace drivetrain
