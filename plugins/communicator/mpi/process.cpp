#include "process.h"

#include <mpi.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <thread>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/standstill.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain::mpi {
namespace {

struct Process {
  std::mutex mutex;
  int64_t claims = 0, rank = -1;  // communicators alive, and whose they are
  std::atomic<bool> failed{false}, cause{false};
  std::atomic<bool> all_are_done{false};
  std::atomic<double> finalize_may_take_s{0};
};
Process& process() {
  static Process* const leaked = new Process;
  return *leaked;
}

// The rank that failed ends the others, so that mpirun returns its exit code; they do the same, should it be stuck.
constexpr auto kCauseEndsFirst = std::chrono::seconds(3);

// Another rank may still write its part of what the run leaves, and it is ended when this one leaves; a day's work is
// not lost for an hour's waiting.
constexpr double kOthersMayWriteS = 6 * 3600;

// MPICH's was seen not to return after all ranks had called it, with everything of the run on disk (README.md). There
// is nothing to lose then: every rank has said over the run's store, behind its last file, that it is done, and a
// process that leaves ends the others only now. A barrier of MPI's own in front, as a sign of that, made it hang more
// often. Where a rank has not said so in time, the last one to be done still has the short deadline, and its end is
// that of all.
void finalize(int status) {
  const Process& p = process();
  const double limit_s = p.all_are_done ? p.finalize_may_take_s.load() : kOthersMayWriteS;
  const int code = p.all_are_done ? status : kPeerLost;
  std::cout.flush(), std::fflush(nullptr);  // the deadline ends the process without that
  const Deadline deadline(did_not_finalize(p.rank, limit_s, p.all_are_done, code), limit_s, code);
  MPI_Finalize();
}

// A rank that leaves without MPI_Finalize makes mpirun end the others, even where it returns 0. Finalizing waits for
// the others, so it is for ranks that all reached the end of the run: done, stopped by a signal or preempted. Who
// returns 0 after a failure has dealt with it, and so have the others.
void end_mpi(int status, void*) {
  int ended = 0;
  if (MPI_Finalized(&ended) != MPI_SUCCESS || ended != 0) return;
  constexpr int kPreempted = 75;
  const bool failed = process().failed;
  if (status == 0 || (!failed && (status == kPreempted || status > 128))) {
    finalize(status);
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

std::string did_not_finalize(int64_t rank, double seconds, bool all_are_done, int code) {
  const std::string what =
      concat("communicator/mpi: rank ", rank, ": MPI_Finalize did not return within ", formatted("%g", seconds), " s");
  if (all_are_done)
    return concat("drivetrain: ", what,
                  ", though every rank is done and has written all of its part: MPI itself hangs. ",
                  "Nothing of the run is lost; the process ends without it, with its own exit code ", code,
                  ", and mpirun may return 9 all the same\n");
  return concat("drivetrain: error: ", what,
                ": it waits for a rank that is not done yet. `ps` shows which one is stopped ",
                "or hangs; this rank's part of the run is written\n");
}

Deadline::Deadline(std::string words, double seconds, int code)
    : thread_([this, words = std::move(words), seconds, code] {
        std::unique_lock lock(mutex_);
        const auto limit =
            std::chrono::steady_clock::now() +
            std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
        if (wait_patiently(changed_, lock, limit, [this] { return over_; })) return;
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

void note_end_of_run(bool all_are_done, double finalize_may_take_s) noexcept {
  process().all_are_done = all_are_done;
  process().finalize_may_take_s = finalize_may_take_s;
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
