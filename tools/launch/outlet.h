// Where the launcher's own stdout and stderr go. Perhaps nobody reads them (a pager that is paused, a terminal after
// Ctrl-S, a full pipe), and the launcher has signals, ends of ranks and deadlines to attend to all the same. So it
// never waits for them: what they do not take is kept, and who fills them is read on only once they have taken it.
// When the run has to end, what they still do not take within a moment is dropped, so that ranks that wait to write
// can end too.
#pragma once

#include <poll.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "launch/rank_process.h"
#include "launch/signal_watch.h"

namespace drivetrain::program {

class Outlet {
 public:
  explicit Outlet(int fd);

  int fd() const { return fd_; }
  bool may_fill() const { return way_ != Way::plain; }  // a pipe, a socket or a terminal
  void put(const std::string& text);
  void flush();  // as much as is taken now

  bool is_empty() const { return waiting_.size() == done_; }
  size_t size() const { return waiting_.size() - done_; }
  pollfd room() const;  // to wait for

  // What it does not begin to take within `seconds` is dropped, and all that comes until there is room again;
  // `keep_all` takes it back.
  void drop_after(double seconds);
  void keep_all();
  // Once after it began to drop, or could not write: what is wrong; "": nothing new is.
  std::string problem();

 private:
  using Clock = std::chrono::steady_clock;
  // reopened: an open file of our own, so that "do not wait" is not set for others that share it. asked: there can be
  // none; poll() says whether a few bytes find room.
  enum class Way { plain, reopened, socket, asked };

  bool has_room() const;
  ssize_t write_some(const char* bytes, size_t size) const;
  void look_for_standstill();

  const int fd_;
  Way way_ = Way::plain;
  Descriptor own_;
  std::string waiting_, problem_;
  size_t done_ = 0;
  Clock::time_point moved_at_ = Clock::now();
  double may_stand_s_ = -1;  // below 0: for ever
  bool drops_ = false, failed_ = false;
};

// Both of them, which are one where they lead to one pipe or file (`2>&1`), so that lines stay whole. What is wrong
// with stdout is said on stderr.
class Outlets {
 public:
  Outlets(int out, int err);
  Outlets(const Outlets&) = delete;
  Outlets& operator=(const Outlets&) = delete;

  Outlet out;

 private:
  const std::unique_ptr<Outlet> own_err_;  // null: it is `out`

 public:
  Outlet& err;

  bool take_more() const;  // false: ranks have to wait with what they write
  std::vector<pollfd> rooms() const { return {out.room(), err.room()}; }
  void turn();    // after each wait
  void begin();   // of an attempt: nothing is dropped
  void end();     // a rank failed, or a signal came: what is not taken within two seconds is dropped
  void insist();  // a second signal: within a moment
  // Between two attempts: so long, or until a signal comes that ends a run. Nothing is dropped until then. Returns that
  // signal, with the effect of `end`, or 0.
  int pause(double seconds, SignalWatch& signals);
  // Until all is taken or dropped. A signal has the effect of `end`, the next one that of `insist`.
  void finish(SignalWatch& signals);

 private:
  void wait(const SignalWatch& signals, int most_ms) const;  // until something is taken, or a signal comes

  bool ends_ = false;
};

}  // namespace drivetrain::program
