// The TCP connection to one other rank: many streams of messages, one per channel and tag, in both directions.
//
// A short message goes at once and waits at the receiver until it is asked for. A long one goes when the receiver has
// said that its memory is there (clear), so a rank never keeps long messages that it has not asked for, and messages of
// other groups pass meanwhile. Messages of a stream keep their order. Nothing here waits: `advance` moves what the
// kernel takes and has.
//
// Between ranks of one host long messages do not pass the socket: the sender says where in its shared memory a message
// lies, after a copy if it must be, and the receiver says when it has read it. Ownership: memory is the caller's until
// the transfer is done. Thread: one at a time, under the carrier's mutex. Errors: none; `lost` says what happened.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <drivetrain/toolkit/host_memory/room.h>
#include <drivetrain/toolkit/messages/carrier.h>

namespace drivetrain::tcp {

using Socket = boost::asio::ip::tcp::socket;

using toolkit::host_memory::Room;

// Numbers of messages in shared memory that were read. Transfers are dropped on any thread.
class Seen {
 public:
  void add(int64_t number);
  std::vector<int64_t> take();

 private:
  std::mutex mutex_;
  std::vector<int64_t> numbers_;
};

struct TcpTransfer final : toolkit::Transfer {
  ~TcpTransfer() override {
    if (seen) seen->add(number);
  }
  char* data = nullptr;  // of a send: only read
  int64_t bytes = 0;
  bool finished = false, looks = false;
  const char* lies_at = nullptr;  // of a look
  std::shared_ptr<Seen> seen;     // who is told that it was dropped
  int64_t number = 0;
  bool done() override { return finished; }
  const char* at() const override { return lies_at; }
};
using TcpTransferPtr = std::shared_ptr<TcpTransfer>;

// The other rank's memory; none where it is on another host.
struct Near {
  std::shared_ptr<Room> room;
  int64_t rank = -1;
};

class Connection {
 public:
  // Longer messages wait for the receiver.
  static constexpr int64_t kShortBytes = 64 << 10;
  // Of messages that were copied into shared memory and not read yet; further ones go through the socket.
  static constexpr int64_t kMostCopied = 16 << 20;

  // `peer`: "rank 1 (pid 4711 on host b)".
  Connection(Socket socket, std::string peer, Near near = {});
  Connection(const Connection&) = delete;
  ~Connection();

  void send(int64_t channel, int tag, TcpTransferPtr transfer);
  void recv(int64_t channel, int tag, TcpTransferPtr transfer);
  void advance();
  void flush();  // says what was read and sends
  // "the connection to rank 1 (pid 4711 on host b) was lost: End of file"; empty: it is not lost.
  const std::string& lost() const { return lost_; }
  void lose(const std::string& reason);
  // Its messages are done.
  void forget(int64_t channel) noexcept;

 private:
  enum Kind : uint32_t { kData = 0xd47a, kClear, kPlace, kSeen };
  struct Head {
    uint32_t kind = kData, tag = 0;
    int64_t channel = 0, bytes = 0;
    int64_t at = 0;  // of a place: offset in the sender's memory; of what was seen: how many places came before it
  };
  struct Outgoing {
    Head head;
    TcpTransferPtr transfer;  // null: a head alone
    int64_t written = 0;      // of head and data
    int64_t total() const { return static_cast<int64_t>(sizeof(Head)) + (transfer ? head.bytes : 0); }
  };
  // A message in shared memory that the receiver has not read yet.
  struct Lent {
    TcpTransferPtr transfer;
    int64_t copy = -1;  // the offset of its copy; -1: it lies where the caller has it
  };
  struct Arrived {
    std::unique_ptr<char[]> data;
    int64_t bytes = 0;
  };
  struct Stream {
    std::deque<TcpTransferPtr> asked, held;  // receives without a message, sends that may not go yet
    std::deque<Arrived> arrived;             // messages without a receive
    int64_t clears = 0;                      // long messages that may go
  };
  // Set by handlers, which may run on a thread without the mutex.
  struct Signals {
    std::atomic<bool> readable{true}, writable{true};
  };
  // The message that is being read.
  struct Incoming {
    TcpTransferPtr transfer;  // null: into `arrived`
    Arrived arrived;
    char* at = nullptr;
    int64_t left = 0;
    Head head;
    bool open = false;
  };

  Stream& stream(int64_t channel, int tag) { return streams_[{channel, static_cast<uint32_t>(tag)}]; }
  void release(Stream& stream, int64_t channel, int tag);
  bool lend(const TcpTransferPtr& transfer, int64_t channel, int tag);
  void take_place(const Head& head);
  void take_back(int64_t number);
  void read();
  bool read_some();  // false: nothing more for now
  void take_bytes();
  void begin_message(const Head& head);
  void end_message();
  void write();
  void await(Socket::wait_type what, std::atomic<bool> Signals::*flag);

  Socket socket_;
  const std::string peer_;
  const Near near_;
  const std::shared_ptr<Seen> seen_ = std::make_shared<Seen>();
  const std::shared_ptr<Signals> signals_ = std::make_shared<Signals>();
  std::string lost_;
  std::map<std::pair<int64_t, uint32_t>, Stream> streams_;
  std::deque<Outgoing> outgoing_;
  std::map<int64_t, Lent> lent_;  // by number
  int64_t places_sent_ = 0, places_taken_ = 0, copied_bytes_ = 0;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // of what is read and not taken yet
  Incoming incoming_;
};

}  // namespace drivetrain::tcp
