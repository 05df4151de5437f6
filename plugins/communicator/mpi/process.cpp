#include "process.h"

#include <mpi.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain::mpi {
namespace {

struct Process {
  std::mutex mutex;
  int64_t claims = 0, rank = -1;  // communicators alive, and whose they are
  std::atomic<bool> failed{false}, cause{false};
};
Process& process() {
  static Process* const leaked = new Process;
  return *leaked;
}

// The rank that failed ends the others, so that mpirun returns its exit code; they do the same, should it be stuck.
constexpr auto kCauseEndsFirst = std::chrono::seconds(1);

// A rank that leaves without MPI_Finalize makes mpirun end the others, even where it returns 0. Finalizing waits for
// the others, so it is for ranks that all reached the end of the run: done, stopped by a signal or preempted. Who
// returns 0 after a failure has dealt with it, and so have the others.
void end_mpi(int status, void*) {
  int ended = 0;
  if (MPI_Finalized(&ended) != MPI_SUCCESS || ended != 0) return;
  constexpr int kPreempted = 75;
  const bool failed = process().failed;
  if (status == 0 || (!failed && (status == kPreempted || status > 128))) {
    MPI_Finalize();
  } else if (failed) {
    if (!process().cause) std::this_thread::sleep_for(kCauseEndsFirst);
    MPI_Abort(MPI_COMM_WORLD, status);
  }
}

void start_library(double timeout_s) {
  int provided = MPI_THREAD_SINGLE;
  const Deadline deadline(did_not_return("MPI_Init_thread", timeout_s), timeout_s, kPeerLost);
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_SERIALIZED)
    throw fail(ErrorCode::config, "communicator/mpi: this MPI offers thread level ", provided,
               ", wanted MPI_THREAD_SERIALIZED (", MPI_THREAD_SERIALIZED, "); use one that was built with threads");
  on_exit(end_mpi, nullptr);
}

}  // namespace

ProcessClaim::ProcessClaim(int64_t rank) {
  Process& p = process();
  const std::lock_guard lock(p.mutex);
  if (p.claims > 0 && p.rank != rank)
    throw fail(ErrorCode::config, "communicator/mpi: ranks ", p.rank, " and ", rank,
               " are threads of one process, and MPI counts processes; start one process per rank, or use "
               "communicator/local");
  p.rank = rank;
  ++p.claims;
}

ProcessClaim::~ProcessClaim() {
  const std::lock_guard lock(process().mutex);
  --process().claims;
}

std::string did_not_return(const std::string& call, double seconds) {
  return concat("drivetrain: error: communicator/mpi: ", call, " did not return within ", formatted("%g", seconds),
                " s: another rank, or MPI itself, waits for something that does not come. A rank that was stopped "
                "shows in `ps`; \"timeout_s\" of the communicator allows for slower starts\n");
}

Deadline::Deadline(std::string words, double seconds, int code)
    : thread_([this, words = std::move(words), seconds, code] {
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return over_; })) return;
        if (write(STDERR_FILENO, words.data(), words.size()) < 0) std::_Exit(code);
        std::_Exit(code);
      }) {}

Deadline::~Deadline() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

std::mutex& mpi_mutex() {
  static std::mutex* const leaked = new std::mutex;
  return *leaked;
}

void start_mpi(int64_t rank, int64_t world_size, double timeout_s) {
  const std::lock_guard lock(mpi_mutex());
  int started = 0, ended = 0, mpi_rank = 0, mpi_size = 0;
  check_mpi(MPI_Initialized(&started), "MPI_Initialized");
  check_mpi(MPI_Finalized(&ended), "MPI_Finalized");
  if (ended != 0) throw fail(ErrorCode::internal, "communicator/mpi: MPI was finalized in this process already");
  if (started == 0) start_library(timeout_s);
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &mpi_size), "MPI_Comm_size");
  if (mpi_rank == rank && mpi_size == world_size) return;
  throw fail(ErrorCode::config, "communicator/mpi: this process is rank ", rank, " of ", world_size,
             ", and MPI calls it rank ", mpi_rank, " of ", mpi_size,
             mpi_size == 1 ? ": it was not started by this MPI's mpirun" : "", ". Start with `mpirun -n ", world_size,
             " drivetrain train CONFIG` instead of `drivetrain launch`, with RANK and WORLD_SIZE unset");
}

void note_failure(bool cause) noexcept {
  process().failed = true;
  if (cause) process().cause = true;
}

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw fail(ErrorCode::communication, call, ": ", text);
}

}  // namespace drivetrain::mpi
