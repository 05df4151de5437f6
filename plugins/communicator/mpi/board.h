// What the ranks of a run tell each other beside the messages: toolkit's board, and how groups are made. MPI itself has
// no word for a rank that gives up.
//
// Ownership, thread and errors: as AbortBoard. Error(communication) names the group and the ranks that did not arrive.
#pragma once

#include <drivetrain/toolkit/communicator/abort_board.h>

#include <functional>
#include <memory>

namespace drivetrain::mpi {

class Board final : public toolkit::AbortBoard {
 public:
  Board(Store& store, int64_t rank, int64_t world_size, double timeout_s);

  // Says that this rank makes the group and waits until all its ranks do. Throws on all of them or on none.
  // `meanwhile` is called again and again: another rank may have to end a call before it comes. True: something moved.
  void meet(const std::vector<int64_t>& ranks, const std::string& label, const std::function<bool()>& meanwhile);

  // Takes over what others raised. A store that is gone is a cause, too.
  void look() noexcept;

 private:
  void on_abort(bool ours) noexcept override;
  void decide(const std::string& label, bool go);
};
using BoardPtr = std::shared_ptr<Board>;

}  // namespace drivetrain::mpi
