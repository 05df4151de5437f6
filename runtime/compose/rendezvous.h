// How the ranks of a run find each other: who am I (environment), the store all share, is everybody there, and does
// everybody run the same thing. Nothing here moves tensors.
//
// Thread: main. Errors: Error(config) for variables, duplicate ranks and differing facts; Error(communication) naming
// the ranks that did not come, or the address that did not answer.
#pragma once

#include <drivetrain/store.h>
#include <drivetrain/value.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace drivetrain {

class MeetingPlace;

struct RankEnvironment {
  int64_t rank = 0, world_size = 1;
  int64_t local_rank = 0, local_size = 1;  // among the ranks of this host
  bool local_known = true;                 // false: local_* are for one rank per host until find_local_ranks
  std::string master_addr = "127.0.0.1";
  int64_t master_port = 29500;
  int listen_fd = -1;  // on rank 0: a listening socket inherited from the launcher, bound to master_port
  std::shared_ptr<MeetingPlace> meeting = nullptr;  // all ranks on this host and nobody named a port: where rank 0 shows one
};

// The value of an environment variable, or null.
using Lookup = std::function<const char*(const char* name)>;

// RANK and WORLD_SIZE (with LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, DRIVETRAIN_LISTEN_FD), else Open
// MPI's, PMI's (MPICH's mpirun) or SLURM's variables, else one process. Errors name the variable and its value.
DRIVETRAIN_API RankEnvironment read_rank_environment(const Lookup& lookup);
DRIVETRAIN_API RankEnvironment read_rank_environment();  // of this process

// In-memory: one process, or ranks that are threads and share the pointer.
DRIVETRAIN_API std::shared_ptr<Store> make_local_store();

// For one rank a local store; otherwise LibTorch's TCPStore, served by rank 0. Waits up to timeout_s for rank 0.
// Destroying the server waits up to a second for the others to leave, so that they read the last word.
DRIVETRAIN_API std::shared_ptr<Store> make_store(const RankEnvironment& env, double timeout_s);

// Fills local_rank and local_size by host names if the environment did not say. Called by all ranks.
DRIVETRAIN_API void find_local_ranks(Store& store, RankEnvironment& env, double timeout_s);

// Returns when all ranks have called it; otherwise every rank that did throws and names those that did not.
DRIVETRAIN_API void check_arrival(Store& store, const RankEnvironment& env, double timeout_s);

// Compares what the ranks say about themselves (configuration, libraries). Every rank throws the same error if any
// differs from rank 0: the ranks, the first differing key and both values. After check_arrival, once per store.
DRIVETRAIN_API void check_same(Store& store, const RankEnvironment& env, const Value& facts, double timeout_s = 60);

// The first place, in a's order, where two values differ: path ("optimizer.params.betas[1]") and both sides as JSON
// ("absent" where there is none). Nothing if they are equal; the order of keys does not matter.
struct Difference {
  std::string path, a, b;
};
DRIVETRAIN_API std::optional<Difference> first_difference(const Value& a, const Value& b);

}  // namespace drivetrain
