// Ranks that leave each other messages in the run's key-value store: works wherever a run starts, on any number of
// hosts, without a library. Slow, and the store keeps every name; write `put` and `take` anew for a faster transport.
//
// The base class makes every collective, sum and error of messages. It has no blocking call of its own to learn.
#include <drivetrain/toolkit/communicator/mailbox.h>

namespace {

using namespace drivetrain;

class StoreMailbox final : public toolkit::Mailbox {
 public:
  explicit StoreMailbox(const Services& services) : services_(services) {}

  void put(int64_t to, const std::string& name, const std::string& bytes) override {
    services_.store.set(concat(name, "/", services_.rank, "-", to), bytes);
  }
  std::optional<std::string> take(int64_t from, const std::string& name) override {
    const std::string key = concat(name, "/", from, "-", services_.rank);
    if (!services_.store.has(key)) return std::nullopt;
    const std::string bytes = services_.store.get(key, kSeconds);
    services_.store.set(key, "");  // its memory is free, its name is not
    return bytes;
  }

 private:
  static constexpr double kSeconds = 10;  // for a value that is there
  const Services& services_;
};

class NewPlugin final : public toolkit::MailboxCommunicator {
 public:
  struct Options {
    double timeout_s = 300;
  };
  static OptionTable options() {
    return table<Options>()
        .field("timeout_s", &Options::timeout_s, "seconds to wait for another rank before giving up")
        .range(0.001, 1e6);
  }
  NewPlugin(const Options& options, const Services& services)
      : MailboxCommunicator("communicator/new_plugin", services, options.timeout_s,
                            std::make_shared<StoreMailbox>(services)) {}
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Communicator, "new_plugin", NewPlugin)
