// A carrier over another one: long messages between ranks of one host stay in shared memory. The sender says where a
// message lies, after a copy if it must be, and the receiver copies it or reads it there, and says when it has; these
// words and all other messages go over the carrier below, as messages of tags of their own.
//
//   MessageCommunicator({..., .hierarchy = true}, services,
//                       std::make_shared<SharedMemoryCarrier>(std::make_shared<MyCarrier>(), services, timeout_s));
//
// Tags of the carrier below have to reach 255. Which ranks share a host says `Members::hosts`. Ownership, thread and
// errors: as Carrier; Error(communication) where a rank's memory cannot be mapped.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include <drivetrain/services.h>
#include <drivetrain/toolkit/host_memory/room.h>
#include <drivetrain/toolkit/messages/carrier.h>

namespace drivetrain::toolkit {

class SharedMemoryCarrier final : public Carrier {
 public:
  // Up to here a message between ranks of a host goes as others do.
  static constexpr int64_t kShortBytes = 4 << 10;
  // Of messages that were copied and not read yet; further ones go over the carrier below.
  static constexpr int64_t kMostCopied = 16 << 20;

  SharedMemoryCarrier(std::shared_ptr<Carrier> below, const Services& services, double timeout_s);
  ~SharedMemoryCarrier() override;

  void start() override { below_->start(); }
  int64_t open(const Members& members, const std::function<void()>& meanwhile) override;
  void close(int64_t channel) noexcept override;
  TransferPtr send(int64_t channel, int to, int tag, const void* data, int64_t bytes) override;
  TransferPtr recv(int64_t channel, int from, int tag, void* data, int64_t bytes) override;
  TransferPtr look(int64_t channel, int from, int tag, void* data, int64_t bytes) override;
  int64_t most_bytes() const override { return below_->most_bytes(); }
  std::shared_ptr<char> allocate(int64_t bytes) override;
  void advance() override;
  void flush() override;
  void pause(int64_t times) override { below_->pause(times); }
  bool wakes() const override { return below_->wakes(); }
  std::string lost(int64_t rank) override;
  void aborted(bool ours) noexcept override { below_->aborted(ours); }
  std::mutex& mutex() override { return below_->mutex(); }

 private:
  struct Place;
  struct Lent;
  struct Arriving;
  class Read;
  // A word of the receiver that is awaited or under way.
  struct Word {
    int64_t number = 0;
    TransferPtr transfer;
  };
  using Room = host_memory::Room;

  std::shared_ptr<Room> room();
  void meet(int64_t rank, const std::string& announcement);
  bool is_near(int64_t channel, int member) const;
  int64_t rank_of(int64_t channel, int member) const;
  TransferPtr lend(int64_t channel, int to, int tag, const void* data, int64_t bytes);
  TransferPtr receive(int64_t channel, int from, int tag, void* data, int64_t bytes, bool looks);
  void take_words();
  // Messages to this rank of which nothing is known yet: of one channel, sender and tag.
  using Stream = std::deque<std::shared_ptr<Arriving>>;
  void take_places(Stream& stream);

  const std::shared_ptr<Carrier> below_;
  const Services services_;
  const double timeout_s_;
  std::mutex room_mutex_;
  std::shared_ptr<Room> room_;  // made for the first group with another rank of this host
  struct Channel {
    std::vector<int64_t> ranks;
    std::vector<char> near;
  };
  std::map<int64_t, Channel> channels_;
  std::map<int64_t, std::string> lost_;  // ranks whose memory cannot be mapped, and why
  std::map<std::tuple<int64_t, int, int>, Stream> streams_;
  std::map<int64_t, std::shared_ptr<Lent>> lent_;  // by number
  int64_t lent_count_ = 0, copied_bytes_ = 0;
  std::deque<std::unique_ptr<Word>> awaited_, sent_;
  std::shared_ptr<Read> read_;
};

}  // namespace drivetrain::toolkit
