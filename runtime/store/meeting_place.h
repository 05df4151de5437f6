// Where the ranks of a run that somebody else started (mpirun, srun, a shell) find what nobody gave them: the secret of
// the run, and under some launchers the port that rank 0 listens on. Rank 0 writes both into a file that only its user
// can read, in a folder that only its user can open; the others read it there.
//
// Ranks of one host meet below XDG_RUNTIME_DIR, or in /tmp/drivetrain-<user>; ranks of several below the home that they
// share. A file is named after the launcher that the ranks have in common, so that two runs on one host never meet -
// it is the nearest ancestor without the variable that tells ranks who they are (a wrapper script has it) - or after
// MASTER_ADDR and MASTER_PORT, which one rank 0 at a time can listen on. What a killed run left is written over.
//
// Ownership: rank 0's removes the file at the latest when destroyed. Thread: `close` from any, else one at a time.
// Errors: Error(communication) for a folder or file that others could have written, with what to do.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "internal.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL MeetingPlace {
 public:
  // Ranks of one host, told who they are by this variable of their launcher's.
  static MeetingPlace of_launcher(const std::string& rank_variable);
  static MeetingPlace of_address(const std::string& host, int64_t port, bool one_host);
  MeetingPlace(MeetingPlace&& other) noexcept;
  ~MeetingPlace() { close(); }

  struct Shown {
    int64_t port = 0;
    std::string secret;
  };
  void show(const Shown& what);
  std::optional<Shown> look() const;  // nothing: no rank 0 has shown anything
  // Once all ranks were here: whom the same launcher starts next shall not find this run.
  void close();
  std::string text() const;  // "the file FILE in FOLDER", for messages

 private:
  MeetingPlace(std::vector<std::string> folders, std::string file)
      : folders_(std::move(folders)), file_(std::move(file)) {}

  std::vector<std::string> folders_;  // rank 0 writes into the first, others look into all
  std::string file_;
  std::mutex mutex_;
  std::string shown_;  // the path of what this one wrote; empty: nothing
};

}  // namespace drivetrain
