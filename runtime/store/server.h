// Rank 0's side of the store between processes: one thread that answers the other ranks out of the table. Whoever has
// not proved to be of this run costs a descriptor and some hundred bytes for a few seconds; nothing that anybody sends
// ends the thread.
//
// A rank whose connection closes without its farewell stops the run, by kStopped in the table. Ownership: of the
// descriptors that it is given. Thread: made and destroyed by one; the table is what others use. Errors:
// Error(communication) where the system has no descriptors for it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "internal.h"
#include "store/table.h"
#include "store/wire.h"

namespace drivetrain {

struct ServedBy {
  std::vector<int> listeners;
  int news = -1;  // a pipe that brings a line for each rank that its launcher saw end; -1: none
  std::string secret;
  int64_t world_size = 1;
  std::function<void()> on_all_here;  // once all others have been let in, by the server's thread; null: nobody cares
};

class DRIVETRAIN_INTERNAL StoreServer {
 public:
  StoreServer(StoreTable& table, ServedBy served_by);
  StoreServer(const StoreServer&) = delete;
  ~StoreServer();

  // False after `seconds`, if some of the others have not left by then.
  bool wait_until_left(double seconds);

 private:
  using Clock = std::chrono::steady_clock;
  enum class Stage { hello, proof, joined, left };
  struct Connection {
    uint64_t number = 0;   // in the order of arrival
    uint32_t watched = 0;  // what epoll looks for
    Clock::time_point since = Clock::now();
    Stage stage = Stage::hello;
    int64_t rank = -1;
    std::string read{}, hello{}, welcome{};  // before it is let in
    FrameCutter frames{kMostFrame};
    std::string out{};
  };
  struct Waiter {
    int fd;
    uint32_t id;
  };

  void serve();
  void accept_from(int listener);
  void read_launcher_news();
  void make_room();
  void drop_late_unauthenticated();
  int milliseconds_to_wait() const;
  void on_event(int fd, uint32_t events);
  bool read_from(int fd, Connection& connection);  // false: nothing more will come, or it must go
  bool take_hello(Connection& connection);
  bool take_proof(Connection& connection);
  bool take_frames(int fd, Connection& connection);
  void answer(int fd, Connection& connection, const StoreRequest& request);
  StoreAnswer answer_to(const StoreRequest& request);
  void forget(int fd, Connection& connection, uint32_t id);
  void handle_leave(Connection& connection, bool failed);
  void on_changes();
  void on_change(const std::string& key);
  void say(int fd, Connection& connection, const StoreAnswer& answer);
  bool flush(int fd, Connection& connection);
  void watch(int fd, Connection& connection);
  void drop(int fd);
  void lost(const Connection& connection, const std::string& how);
  bool here(int64_t rank) const { return ranks_here_.count(rank) != 0; }
  void count_left(int64_t rank);

  StoreTable& table_;
  const ServedBy by_;
  int epoll_ = -1, bell_ = -1;
  std::map<int, Connection> connections_;    // by descriptor
  std::map<uint64_t, int> unauthenticated_;  // descriptors of those not let in yet, oldest first
  std::multimap<std::string, Waiter> waiters_;
  std::set<int64_t> ranks_here_, ranks_seen_;
  uint64_t arrivals_ = 0;
  std::string news_;  // of the launcher, as far as its last line is not whole
  std::mutex mutex_;  // of what follows
  std::condition_variable left_changed_;
  std::set<int64_t> ranks_left_;
  std::vector<std::string> changes_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace drivetrain
