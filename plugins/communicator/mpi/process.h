// This process's MPI: started once, ended once, one rank per process.
//
// Ownership: process-wide. Thread: any; `start_mpi` on the thread that later ends the process (the main one). Errors:
// Error(config) for ranks that are threads and for a world that is not the run's; Error(communication) from check_mpi.
#pragma once

#include <cstdint>
#include <mutex>

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

// Starts MPI unless that was done, and checks that MPI counts the ranks as the run does.
void start_mpi(int64_t rank, int64_t world_size);

// Operations may be unfinished: at exit MPI is aborted, not finalized, which would wait for them. `cause`: it began
// here.
void note_failure(bool cause) noexcept;

// Throws Error(communication) with MPI's own words unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

}  // namespace drivetrain::mpi
