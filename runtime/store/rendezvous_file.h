// The rendezvous file of a run that another launcher started (mpirun, srun, a shell). It holds the secret of the run,
// and under some launchers the port that rank 0 listens on. Rank 0 writes it, the other ranks read it. Only the user
// can read the file and open its folder.
//
// Ranks of one host use a folder below XDG_RUNTIME_DIR, or /tmp/drivetrain-<user>; ranks of several hosts use one below
// their common home. The file's name contains the process id of the ranks' common launcher, so that two runs on one
// host have different files. The launcher is the nearest ancestor process without the variable that holds the rank (a
// wrapper script has it). Otherwise the name is made of MASTER_ADDR and MASTER_PORT, on which only one rank 0 at a time
// can listen. A file that a killed run left is overwritten.
//
// Ownership: rank 0's object removes the file when it is destroyed, or earlier. Thread: `close` from any, else one at a
// time. Errors: Error(communication) for a folder or file that others could have written, with what to do.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "internal.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL RendezvousFile {
 public:
  // For ranks of one host. `rank_variable`: the environment variable in which their launcher gives the rank.
  static RendezvousFile of_launcher(const std::string& rank_variable);
  static RendezvousFile of_address(const std::string& host, int64_t port, bool one_host);
  RendezvousFile(RendezvousFile&& other) noexcept;
  ~RendezvousFile() { close(); }

  struct Contents {
    int64_t port = 0;
    std::string secret;
  };
  void write(const Contents& what);
  std::optional<Contents> read() const;  // no value: rank 0 has not written the file yet
  // Removes the file. Called when all ranks have joined, so that the launcher's next run does not find it.
  void close();
  std::string text() const;  // "the file FILE in FOLDER", for messages

 private:
  RendezvousFile(std::vector<std::string> folders, std::string file)
      : folders_(std::move(folders)), file_(std::move(file)) {}

  std::vector<std::string> folders_;  // rank 0 writes into the first one, others look into all
  std::string file_;
  std::mutex mutex_;
  std::string written_;  // the path of the file that this object wrote; empty: none
};

}  // namespace drivetrain
