// A rank's side of the store between processes. It looks for rank 0 from its making on, in a thread of its own that
// later takes rank 0's answers; several threads may ask at once, and one that waits for a key keeps no other.
//
// Every call has a deadline: the one it is given, or that of `enter`. Once rank 0 did not answer or is gone, every
// later call says so at once. Destroying it says farewell to rank 0, or, where an exception is on its way through, that
// this rank stopped. Thread: any. Errors: Error(communication) naming this rank, the address and what was wanted;
// Error(config) for two processes of one rank.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <drivetrain/error.h>
#include <drivetrain/store.h>

#include "internal.h"
#include "process/guarded_descriptors.h"
#include "store/socket.h"
#include "store/wire.h"

namespace drivetrain {

struct ServerPlace {
  std::string host;
  int64_t port = 0;
  std::string secret;
  bool stale = false;  // it may be that of a run that is over: another answer than rank 0's is no reason to give up
  bool open = false;   // it has been listened on all the time: a refused connection means that rank 0 has ended
};
// Where rank 0 is, as far as that is known now; nothing and why: ask again. Throws what cannot be mended by waiting.
using FindServer = std::function<std::optional<ServerPlace>(std::string& reason)>;

class DRIVETRAIN_INTERNAL StoreClient final : public Store {
 public:
  // `address` is for messages: "127.0.0.1:29500 (MASTER_ADDR:MASTER_PORT)".
  StoreClient(int64_t rank, std::string address, FindServer find);
  StoreClient(const StoreClient&) = delete;
  ~StoreClient() override;

  int64_t rank() const { return rank_; }
  // Returns once rank 0 has let this rank in; later calls may take as long.
  void enter(double timeout_s);
  // The addresses of its connection to rank 0, once it is in.
  ConnectionEnds ends() const { return ends_of(fd_); }
  // `set` in a time of its own, also before that.
  void set_within(double timeout_s, const std::string& key, const std::string& value);
  // For whoever watches the run while rank 0 may be stopped. Nothing: no answer within timeout_s, which other calls do
  // not suffer from. Not for `get` of a key that may be absent: rank 0 would keep the question.
  std::optional<StoreAnswer> ask_within(double timeout_s, StoreRequestKind asks, const std::string& key,
                                        const std::string& value, int64_t number);

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, double timeout_s) override;
  bool has(const std::string& key) override;
  int64_t add(const std::string& key, int64_t delta) override;

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;
  struct PendingCall {  // what a call waits for, in words too
    StoreRequest request;
    std::string words;
    Clock::time_point deadline;
    double timeout_s;
    bool may_stay_open = false;  // no answer is no failure of the store
  };

  void run();
  bool join_rank_0();  // true: let in; false: try again
  bool authenticate(int fd, const ServerPlace& place);
  bool await_entry(int fd, const WaitLimit& wait_limit);
  void read_answers();
  void take(const StoreAnswer& answer);
  StoreAnswer call(StoreRequestKind asks, const std::string& key, const std::string& value, int64_t number,
                   double timeout_s);
  std::optional<StoreAnswer> ask(PendingCall wish);
  void send_frame(Lock& lock, const std::string& frame, const PendingCall& wish);
  std::optional<StoreAnswer> await_answer(Lock& lock, uint32_t id, Clock::time_point deadline);
  void see(const std::string& sight, const std::string& reason);
  void give_up(ErrorCode code, const std::string& text);
  [[noreturn]] void unanswered(Lock& lock, const PendingCall& wish);
  void throw_if_failed(const std::string& words) const;  // with the mutex held
  void wait_until_in(Lock& lock, Clock::time_point deadline, double timeout_s);
  std::string me() const { return concat("rank ", rank_, ": "); }

  const int64_t rank_;
  const std::string address_;
  const FindServer find_;
  const int bell_;
  GuardedDescriptor guard_{bell_};
  std::atomic<bool> ending_{false};
  std::atomic<int> fd_{-1};
  FrameCutter frames_{kMostFrame};
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  bool in_ = false, sending_ = false;
  double timeout_s_ = 60;
  std::string sight_ = "did not open", reason_ = "it was not looked for yet";  // while it is not in
  std::string stop_reason_;
  std::optional<Error> failure_;
  uint32_t last_id_ = 0;
  std::map<uint32_t, std::optional<StoreAnswer>> answers_;  // of calls that wait
  std::thread thread_;
};

}  // namespace drivetrain
