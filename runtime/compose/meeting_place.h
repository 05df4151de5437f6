// Where the ranks of one host that a foreign launcher started find rank 0's store: rank 0 listens on a free port of the
// loopback and shows its number in the name of an abstract Unix socket; the others read the list of such names. A name
// begins with the launcher that the ranks have in common, so two runs on one host never meet, and it goes with its
// process: nothing stays in the file system. The launcher is the nearest ancestor without the variable that tells ranks
// who they are (a wrapper script has it).
//
// Ownership: shared by copies of a RankEnvironment. Thread: one at a time. Errors: Error(communication).
#pragma once

#include <cstdint>
#include <string>

#include <drivetrain/export.h>

namespace drivetrain {

class DRIVETRAIN_API MeetingPlace {
 public:
  explicit MeetingPlace(std::string rank_variable) : rank_variable_(std::move(rank_variable)) {}
  MeetingPlace(const MeetingPlace&) = delete;
  ~MeetingPlace() { close(); }

  struct Found {
    int64_t port = 0;
    int listen_fd = -1;  // on rank 0, for the store to own
  };
  Found open(int64_t rank, double timeout_s);
  // Once all ranks were here: whom the same launcher starts next shall not find this run.
  void close();

 private:
  const std::string rank_variable_;
  int name_fd_ = -1;
};

}  // namespace drivetrain
