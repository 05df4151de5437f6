// A group's queue of operations, and the engine that moves all of a communicator's queues.
//
// A collective begins when those before it in its group are done, a message when it may: what uses the same memory goes
// in the order of the calls, and so do messages with the same ends. Groups do not wait for each other. There is no
// thread: whoever calls or waits moves everything. A wait polls, then sleeps in short slices; every 100 ms it looks on
// the board for an abort and whether a rank that it waits for has left, and gives up after timeout_s without anything
// having moved. After a failure operations are abandoned with their memory: the carrier may still write to it.
//
// Ownership: groups and works share lanes, lanes share the engine. Thread: any, one at a time (the carrier's mutex).
// Errors: Error(communication) with the cause that the board holds.
#pragma once

#include <chrono>
#include <deque>

#include "board.h"
#include "flows.h"

namespace drivetrain::toolkit::messages {

class Lane;

class Engine {
 public:
  Engine(BoardPtr board, std::shared_ptr<Carrier> carrier, bool cores_to_spare);

  Board& board() const { return *board_; }
  Carrier& carrier() const { return *carrier_; }
  void enter(Lane& lane, OperationPtr operation);
  void wait(Lane& lane, const Operation& operation);
  bool advance();  // true if something arrived
  void join(Lane* lane);
  void leave(Lane* lane);

 private:
  using Clock = std::chrono::steady_clock;
  bool advance_all();
  void look();
  std::string gone(Lane& lane, int64_t rank, const std::vector<int64_t>& before);
  bool is_missed_in_the_end(Lane& lane, int64_t rank);
  void check_late(Lane& lane, const Operation& waited, Clock::time_point since);
  void pause(int64_t idle);

  const BoardPtr board_;
  const std::shared_ptr<Carrier> carrier_;
  std::mutex& mutex_;
  const bool cores_to_spare_;
  const int64_t polls_;  // before a waiting rank sleeps
  std::vector<Lane*> lanes_;
  Clock::time_point looked_{};
};

class Lane {
 public:
  Lane(std::shared_ptr<Engine> engine, std::string plugin, Wire wire, std::vector<int64_t> ranks, std::string label);
  ~Lane();

  const Wire& wire() const { return wire_; }
  const std::vector<int64_t>& ranks() const { return ranks_; }
  const std::string& label() const { return label_; }
  const std::string& plugin() const { return plugin_; }
  Engine& engine() const { return *engine_; }

 private:
  friend class Engine;
  void enter(OperationPtr operation);
  bool advance();  // true if something arrived
  bool advance(Operation& op);
  bool pass();
  bool may_begin(size_t index) const;
  bool busy() const { return !queue_.empty(); }
  std::vector<int64_t> pending(Operation& op);  // global ranks that it waits for
  std::vector<int64_t> pending();               // that any operation waits for
  std::string why_late(const Operation& waited, double timeout_s);

  const std::shared_ptr<Engine> engine_;
  const std::string plugin_;
  const Wire wire_;
  const std::vector<int64_t> ranks_;
  const std::string label_;
  std::deque<OperationPtr> queue_;  // those that are not done, in the order of the calls
  int64_t open_messages_ = 0;       // operations of the queue
  std::chrono::steady_clock::time_point moved_at_{};
  std::vector<int64_t> gone_;  // ranks that had left when last looked at
};

}  // namespace drivetrain::toolkit::messages
