// A communicator on top of messages: whoever can carry bytes from one rank to another has every collective, with sums
// in the order of the contract and errors that name the rank. A plugin writes the two functions of a Mailbox:
//
//   class Mine : public toolkit::MailboxCommunicator {
//     Mine(const Options& options, const Services& services)
//         : MailboxCommunicator("communicator/mine", services, options.timeout_s, std::make_shared<MyMailbox>()) {}
//   };
//
// Tensors of the CPU. Every member sends its part to every other one, and a call waits until all have come: right and
// short, not fast. Thread: one call at a time per group; `abort` from any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/communicator.h>
#include <drivetrain/services.h>

namespace drivetrain::toolkit {

// How bytes go from rank to rank. Ranks are global. Names are unique in a run; messages have at most kMostBytes.
// Both calls may throw Error(communication).
class Mailbox {
 public:
  static constexpr size_t kMostBytes = size_t{16} << 20;
  virtual ~Mailbox();
  // Sends a message. Does not wait for the receiver, which may ask for it much later.
  virtual void put(int64_t to, const std::string& name, const std::string& bytes) = 0;
  // The message of that name from that rank if it is here; does not wait. Called until it is, and then not again.
  virtual std::optional<std::string> take(int64_t from, const std::string& name) = 0;
};

class MailboxCommunicator : public Communicator {
 public:
  ~MailboxCommunicator() override;
  void plan(PlanContext& ctx) override;  // refuses a device
  GroupPtr make_group(const std::vector<int64_t>& ranks, const std::string& label) final;
  void abort(const std::string& reason) noexcept final;

 protected:
  // `plugin`: "communicator/mine". `timeout_s`: seconds to wait for another rank.
  MailboxCommunicator(const std::string& plugin, const Services& services, double timeout_s,
                      std::shared_ptr<Mailbox> mailbox);

 private:
  class Post;
  class MailboxGroup;
  const std::shared_ptr<Post> post_;
};

}  // namespace drivetrain::toolkit
