// What the groups of one MailboxCommunicator share: the mailbox, and waiting with a deadline, aborts and ranks that
// have left. Private to the toolkit.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <drivetrain/toolkit/communicator/abort_board.h>
#include <drivetrain/toolkit/communicator/mailbox.h>

namespace drivetrain::toolkit {

class MailboxCommunicator::Post final : public AbortBoard {
 public:
  Post(const std::string& plugin, const Services& services, double timeout_s, std::shared_ptr<Mailbox> mailbox)
      : AbortBoard(plugin, services.store, services.rank, timeout_s, kPeriodS),
        plugin_(plugin),
        mailbox_(std::move(mailbox)) {}

  const std::string& plugin() const { return plugin_; }
  // Waits until all of `ranks` have come here.
  void meet(const std::vector<int64_t>& ranks, const std::string& label);
  // A message of any length; the name is unique within this communicator.
  void send(int64_t to, const std::string& name, const std::string& bytes);
  // The messages of that name from these ranks, in their order. `members`: all ranks of the group, for the error.
  std::vector<std::string> receive(const std::vector<int64_t>& from, const std::string& name, const std::string& where,
                                   const std::vector<int64_t>& members);
  // Ends the run on all ranks, and this call.
  [[noreturn]] void give_up(const std::string& cause, const std::string& where);

 private:
  static constexpr double kPeriodS = 0.05;
  // Until `done`. `missing`: the ranks that are waited for.
  void wait(const std::function<bool()>& done, const std::function<std::vector<int64_t>()>& missing,
            const std::string& where, const std::vector<int64_t>& members);

  const std::string plugin_;
  const std::shared_ptr<Mailbox> mailbox_;
};

}  // namespace drivetrain::toolkit
