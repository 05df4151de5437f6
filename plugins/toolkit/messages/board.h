// What the ranks of a run tell each other beside the messages: toolkit's board, and how the members of
// a group meet.
//
// Ownership, thread and errors: as AbortBoard. Error(communication) names the group and the ranks that did not arrive.
#pragma once

#include <drivetrain/toolkit/communicator/abort_board.h>
#include <drivetrain/toolkit/messages/message_communicator.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/error.h>

namespace drivetrain::toolkit::messages {

class Board final : public AbortBoard {
 public:
  Board(const MessageSettings& settings, const Services& services, std::shared_ptr<Carrier> carrier);

  // Says that this rank makes the group and waits until all its ranks do. Throws on all of them or on none. Returns
  // a number that only this group of the run has.
  // `meanwhile` is called again and again: another rank may have to end a call before it comes. True: something moved.
  int64_t meet(const std::vector<int64_t>& ranks, const std::string& label, const std::function<bool()>& meanwhile);

  // The host of each of `ranks`, which have met: equal numbers where processes of one user see each other. Without
  // hierarchy every rank has its own.
  std::vector<int> hosts(const std::vector<int64_t>& ranks);

  // The beginning of keys that only this group uses.
  std::string key_of(int64_t id) const { return key(concat("group/", id, "/")); }

  // Takes over what others raised. A store that is gone is a cause, too.
  void look() noexcept;

  void close() noexcept override;
  // Waits until all ranks of the run have closed theirs. False: not within that time, or the run was aborted, or the
  // store is gone; none of it is a failure of this rank, which is done. `meanwhile` is called again and again.
  bool all_close_within(double seconds, const std::function<void()>& meanwhile) noexcept;

 private:
  void on_abort(bool ours) noexcept override { carrier_->aborted(ours); }
  void decide(const std::string& label, bool go);

  const std::string plugin_, host_;
  const int64_t world_size_;
  const std::shared_ptr<Carrier> carrier_;
  std::map<int64_t, std::string> hosts_;  // by global rank
};
using BoardPtr = std::shared_ptr<Board>;

}  // namespace drivetrain::toolkit::messages
