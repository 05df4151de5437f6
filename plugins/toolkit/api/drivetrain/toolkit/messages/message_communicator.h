// A communicator on top of a Carrier, with every collective, sums in the order of the contract and errors that name the
// rank. Calls return at once; whoever calls or waits moves the works of all groups.
//
//   class Mine : public toolkit::MessageCommunicator {
//     Mine(const Options& options, const Services& services)
//         : MessageCommunicator({"communicator/mine", options.timeout_s}, services, std::make_shared<MyCarrier>()) {}
//   };
//
// Tensors of the CPU. Thread: one call at a time per group; `abort` from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/communicator.h>
#include <drivetrain/options.h>
#include <drivetrain/services.h>
#include <drivetrain/toolkit/messages/carrier.h>

namespace drivetrain::toolkit {

struct MessageSettings {
  std::string plugin;             // "communicator/mine"
  double timeout_s = 300;         // to wait for another rank
  int64_t piece_bytes = 4 << 20;  // what a step of a sum receives from each other rank
  // Ranks of one host add before they send to other hosts: less goes between hosts and more on each, which pays where
  // that is much quicker, as with memory that they share.
  bool hierarchy = false;
};

// The options that such a communicator has, and its table, to which a plugin adds fields of its own.
struct MessageOptions {
  double timeout_s = 300;
  int64_t piece_bytes = 1 << 20;
  bool share = true;
};
template <class Options>  // MessageOptions, or derived from it
TableBuilder<Options> message_table() {
  return table<Options>()
      .field("timeout_s", static_cast<double Options::*>(&Options::timeout_s),
             "seconds to wait for another rank before giving up")
      .range(0.001, 1e6)
      .field("piece_bytes", static_cast<int64_t Options::*>(&Options::piece_bytes),
             "what a step of a sum receives from each other rank; less where many ranks would need more than 64 MB")
      .range(64, 1 << 30)
      .field("share", static_cast<bool Options::*>(&Options::share),
             "ranks of one host use shared memory, and add before they send to other hosts; false: as if each rank "
             "had a host of its own");
}

class MessageCommunicator : public Communicator {
 public:
  ~MessageCommunicator() override;
  void plan(PlanContext& ctx) override;  // refuses a device
  GroupPtr make_group(const std::vector<int64_t>& ranks, const std::string& label) final;
  void abort(const std::string& reason) noexcept final;

 protected:
  MessageCommunicator(const MessageSettings& settings, const Services& services, std::shared_ptr<Carrier> carrier);

  // For the destructor of a communicator whose library has to know that no rank of the run needs it any more: makes no
  // group from now on, and waits until no other rank does. False: that is not so, or not within that time. `meanwhile`
  // is called again and again, for a library that sends only while it is called.
  bool close_with_all(double within_s, const std::function<void()>& meanwhile) noexcept;

 private:
  struct Inside;
  const std::unique_ptr<Inside> inside_;
};

}  // namespace drivetrain::toolkit
