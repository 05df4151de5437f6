// How ranks that share a group get connected: each writes into the store where it listens and a secret, the later rank
// of a pair connects to the earlier one, and each end shows the other's secret. The store is open to ranks of the run
// alone, so who knows the secrets is one. Nobody listens before or after: a stranger is refused by the kernel, or cut
// off here at its first wrong bytes or after some seconds, and the ranks that it crowds out try again.
//
// Secrets travel as the data does, in the clear: who can read the network can read both. Nothing here waits: `advance`
// is called again and again. Ownership: one per make_group. Thread: main; handlers on any. Errors:
// Error(communication) naming this rank, the address and the kernel's reason.
#pragma once

#include <boost/asio/ip/tcp.hpp>

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/store.h>
#include <drivetrain/toolkit/messages/carrier.h>

namespace drivetrain::tcp {

struct Met {
  boost::asio::ip::tcp::socket socket;
  std::string who;     // "rank 1 (pid 4711 on host b)"
  std::string memory;  // as the rank announced it: see host_memory/room.h
};

class Meeting {
 public:
  // Connects rank `me` with each of `ranks` (global). `key`: the beginning of keys for this meeting alone. `memory`:
  // what this rank announces, one word.
  Meeting(boost::asio::io_context& context, Store& store, std::string key, int64_t me, std::vector<int64_t> ranks,
          const boost::asio::ip::address& address, const std::string& memory = "-");
  Meeting(const Meeting&) = delete;
  ~Meeting();

  void advance();
  bool done() const { return met_.size() == ranks_.size(); }
  std::map<int64_t, Met> take() { return std::move(met_); }
  // Which ranks are missing, and what was last seen of them.
  std::string missing() const;

 private:
  using Clock = std::chrono::steady_clock;
  using Acceptor = boost::asio::ip::tcp::acceptor;
  using Socket = boost::asio::ip::tcp::socket;
  static constexpr size_t kSecretBytes = 32;
  struct Hello {
    char magic[8];
    int64_t rank;
    char secret[kSecretBytes];
  };
  // What a rank writes into the store.
  struct Entry {
    std::string address, secret, memory, who;
    uint16_t port = 0;
  };
  // A socket on which a hello is awaited.
  struct Pending {
    std::unique_ptr<Socket> socket;
    Clock::time_point since;
    std::string bytes;
  };
  struct Attempt;

  void listen(const boost::asio::ip::address& address);
  std::string entry_key(int64_t rank) const;
  const Entry* entry(int64_t rank);
  Hello hello(const std::string& secret) const;
  static bool shows(const Hello& hello, const std::string& secret);
  // False: it is closed or says something else.
  static bool read_hello(Pending& pending, std::optional<Hello>& hello);
  void accept();
  bool answer(Pending& pending);  // true: it is dealt with
  void connect(int64_t rank);
  void go_on(Attempt& attempt);
  void enter(int64_t rank, Socket socket);

  boost::asio::io_context& context_;
  Store& store_;
  const std::string key_;
  const int64_t me_;
  const std::vector<int64_t> ranks_;
  std::string secret_;
  std::optional<Acceptor> acceptor_;
  std::deque<Pending> pending_;
  std::map<int64_t, std::unique_ptr<Attempt>> attempts_;
  std::map<int64_t, Entry> entries_;
  std::map<int64_t, Met> met_;
  std::string at_, accept_reason_;
};

}  // namespace drivetrain::tcp
