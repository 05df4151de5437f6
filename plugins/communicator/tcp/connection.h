// The TCP connection to one other rank: many streams of messages, one per channel and tag, in both directions.
//
// A short message goes at once and waits at the receiver until it is asked for. A long one goes when the receiver has
// said that its memory is there (clear), so a rank never keeps long messages that it has not asked for, and messages of
// other groups pass meanwhile. Messages of a stream keep their order. Nothing here waits: `advance` moves what the
// kernel takes and has. Ownership: memory is the caller's until the transfer is done. Thread: one at a time, under the
// carrier's mutex. Errors: none; `lost` says what happened.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <drivetrain/toolkit/messages/carrier.h>

namespace drivetrain::tcp {

using Socket = boost::asio::ip::tcp::socket;

struct TcpTransfer final : toolkit::Transfer {
  char* data = nullptr;  // of a send: only read
  int64_t bytes = 0;
  bool finished = false;
  bool done() override { return finished; }
};
using TcpTransferPtr = std::shared_ptr<TcpTransfer>;

class Connection {
 public:
  // Longer messages wait for the receiver.
  static constexpr int64_t kShortBytes = 64 << 10;

  // `peer`: "rank 1 (pid 4711 on host b)".
  Connection(Socket socket, std::string peer);
  Connection(const Connection&) = delete;
  ~Connection();

  void send(int64_t channel, int tag, TcpTransferPtr transfer);
  void recv(int64_t channel, int tag, TcpTransferPtr transfer);
  void advance();
  // "the connection to rank 1 (pid 4711 on host b) was lost: End of file"; empty: it is not lost.
  const std::string& lost() const { return lost_; }
  // Its messages are done.
  void forget(int64_t channel) noexcept;

 private:
  enum Kind : uint32_t { kData = 0xd47a, kClear };
  struct Head {
    uint32_t kind = kData, tag = 0;
    int64_t channel = 0, bytes = 0;
  };
  struct Outgoing {
    Head head;
    TcpTransferPtr transfer;  // null: a clear
    int64_t written = 0;      // of head and data
    int64_t total() const { return static_cast<int64_t>(sizeof(Head)) + (transfer ? head.bytes : 0); }
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
  void read();
  bool read_some();  // false: nothing more for now
  void take_bytes();
  void begin_message(const Head& head);
  void end_message();
  void write();
  void lose(const std::string& reason);
  void await(Socket::wait_type what, std::atomic<bool> Signals::*flag);

  Socket socket_;
  const std::string peer_;
  const std::shared_ptr<Signals> signals_ = std::make_shared<Signals>();
  std::string lost_;
  std::map<std::pair<int64_t, uint32_t>, Stream> streams_;
  std::deque<Outgoing> outgoing_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // of what is read and not taken yet
  Incoming incoming_;
};

}  // namespace drivetrain::tcp
