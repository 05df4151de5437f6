// A thread that looks whether its rank goes on. If nothing was written into the flight record for a while, all ranks
// give their pictures, and one of them says who holds the run up. It ends nothing by itself: what waits has deadlines
// of its own, the communicator's timeout_s and hook_timeout_s. Only where ranks make different collectives, which can
// never end, it says so to every rank at once.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <drivetrain/log.h>
#include <drivetrain/store.h>

#include "flight/record.h"
#include "internal.h"
#include "watch/exchange.h"

namespace drivetrain {

struct FlightWatchParts {
  std::shared_ptr<FlightRecord> record;
  std::shared_ptr<Store> store;
  std::shared_ptr<Log> log;
  bool first_of_host = true;                // who speaks where rank 0's store does not answer
  double stall_s = 5;                       // within which a stall is told of; 0: only when asked
  const std::atomic<int>* asked = nullptr;  // counts requests of the user (SIGUSR2); null: none come
  std::function<void(const std::string& reason)> on_different_calls;
};

class DRIVETRAIN_INTERNAL FlightWatch {
 public:
  explicit FlightWatch(FlightWatchParts parts);
  ~FlightWatch();
  FlightWatch(const FlightWatch&) = delete;
  FlightWatch& operator=(const FlightWatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  struct Seat {
    uint64_t calls = 0;
    Clock::time_point since{};
    std::string call;
    bool busy = false, slow_kind = false, main_thread = false;  // slow_kind: it moves files
  };

  void watch();
  void look(Clock::time_point now);
  void look_at_seats(Clock::time_point now);
  void look_at_step(Clock::time_point now);
  double patience() const;  // seconds without a sign of progress that are nothing special here
  bool over_store(Clock::time_point now);
  double say_after() const;
  bool holds_still() const;
  bool compare(bool asks, bool stalled);  // true: this rank has said what was found
  void say_nobody_answers();
  void note(const std::string& text);
  RankPicture picture() const;

  const FlightWatchParts parts_;
  FlightExchange exchange_;
  std::string host_;
  std::map<size_t, Seat> seats_;
  uint64_t progress_ = 0, main_calls_ = 0;
  Clock::time_point moved_, looked_, listened_;
  std::optional<Clock::time_point> unheard_;  // since when rank 0's store does not answer
  double late_s_ = 0;                         // by which this thread came late of late, the most
  int64_t step_ = 0;
  Clock::time_point step_at_;
  std::deque<double> step_s_;  // of the last steps
  bool told_ = false;          // of this stall
  double stalled_s_ = 0;       // the longest that was told of
  int asked_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace drivetrain
