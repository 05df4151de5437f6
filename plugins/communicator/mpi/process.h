// This process's MPI: started once, ended once, one rank per process.
//
// Ownership: process-wide. Thread: any; `start_mpi` on the thread that later ends the process (the main one). Errors:
// Error(config) for ranks that are threads and for a world that is not the run's; Error(communication) from check_mpi.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace drivetrain::mpi {

// Held by every communicator: refuses a second rank in this process.
class ProcessClaim {
 public:
  explicit ProcessClaim(int64_t rank);
  ProcessClaim(const ProcessClaim&) = delete;
  ~ProcessClaim();
};

// Held around every call of MPI, which is asked for MPI_THREAD_SERIALIZED: one for all communicators of the process.
std::mutex& mpi_mutex();

inline constexpr int kPeerLost = 5;  // the program's exit code for it

// Some calls of MPI wait for other ranks and can neither be asked nor given up. Where this lives longer than `seconds`
// the process ends with `code`, behind these words on stderr.
class Deadline {
 public:
  Deadline(std::string words, double seconds, int code);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

// Of a call at the start of a run.
std::string did_not_return(const std::string& call, double seconds);
// Of MPI_Finalize, after which the process ends with `code`.
std::string did_not_finalize(int64_t rank, double seconds, bool all_are_done, int code);

// Starts MPI unless that was done, and checks that MPI counts the ranks as the run does. The start may take so long.
void start_mpi(int64_t rank, int64_t world_size, double timeout_s);

// At the end of a run. `all_are_done`: nothing of the run is left to do on any rank, so that MPI_Finalize, which
// waits for all of them, may take `finalize_may_take_s`. Else another rank may still write, for as long as that takes.
void note_end_of_run(bool all_are_done, double finalize_may_take_s) noexcept;

// Operations may be unfinished: at exit MPI is aborted, not finalized, which would wait for them. `cause`: it began
// here.
void note_failure(bool cause) noexcept;

// Throws Error(communication) with MPI's own words unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

}  // namespace drivetrain::mpi
