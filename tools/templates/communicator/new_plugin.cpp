// Ranks that leave each other messages in the run's key-value store: works wherever a run starts, on any number of
// hosts, without a library. Slow, and the store keeps every name; write `send` and `recv` anew for a faster transport.
//
// The base class makes every collective, sum and error of messages. It has no blocking call of its own to learn.
#include <drivetrain/toolkit/messages/message_communicator.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace {

using namespace drivetrain;
using toolkit::TransferPtr;

struct Sent final : toolkit::Transfer {
  bool done() override { return true; }  // the store has a copy
};

class Received final : public toolkit::Transfer {
 public:
  Received(Store& store, std::string key, void* data, int64_t bytes)
      : store_(store), key_(std::move(key)), data_(data), bytes_(static_cast<size_t>(bytes)) {}

  bool done() override {
    if (done_ || !store_.has(key_)) return done_;
    const std::string message = store_.get(key_, kSeconds);
    if (!message.empty()) std::memcpy(data_, message.data(), std::min(message.size(), bytes_));
    store_.set(key_, "");  // its memory is free, its name is not
    return done_ = true;
  }

 private:
  static constexpr double kSeconds = 10;  // for a value that is there
  Store& store_;
  const std::string key_;
  void* const data_;
  const size_t bytes_;
  bool done_ = false;
};

class StoreCarrier final : public toolkit::Carrier {
 public:
  explicit StoreCarrier(const Services& services) : store_(services.store) {}

  int64_t open(const toolkit::Members& members, const std::function<void()>&) override {
    channels_.push_back(members);
    return static_cast<int64_t>(channels_.size()) - 1;
  }
  TransferPtr send(int64_t channel, int to, int tag, const void* data, int64_t bytes) override {
    const auto* const text = static_cast<const char*>(data);
    store_.set(next_key(channel, me(channel), to, tag), std::string(text, text + bytes));
    return std::make_shared<Sent>();
  }
  TransferPtr recv(int64_t channel, int from, int tag, void* data, int64_t bytes) override {
    return std::make_shared<Received>(store_, next_key(channel, from, me(channel), tag), data, bytes);
  }
  int64_t most_bytes() const override { return int64_t{1} << 20; }
  std::mutex& mutex() override { return mutex_; }

 private:
  int64_t me(int64_t channel) const { return channels_[static_cast<size_t>(channel)].me; }
  // Both ends count the messages between them.
  std::string next_key(int64_t channel, int64_t from, int64_t to, int tag) {
    const std::string ends = concat(channels_[static_cast<size_t>(channel)].key, from, "-", to, "/", tag, "/");
    return concat(ends, ++messages_[ends]);
  }

  Store& store_;
  std::mutex mutex_;
  std::vector<toolkit::Members> channels_;
  std::map<std::string, int64_t> messages_;
};

class NewPlugin final : public toolkit::MessageCommunicator {
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
      : MessageCommunicator({"communicator/new_plugin", options.timeout_s}, services,
                            std::make_shared<StoreCarrier>(services)) {}
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Communicator, "new_plugin", NewPlugin)
