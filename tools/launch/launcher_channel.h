// The agent's side of the channel to its launcher.
#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launch/message.h"

namespace drivetrain::program {

class LauncherChannel {
 public:
  // `session`: the ends of the connection in the form of SSH_CONNECTION; "": they are not known, or there is no network
  // between. `in` and `out` are made not to block.
  LauncherChannel(Descriptor in, Descriptor out, std::string session);
  // Takes stdin and stdout of this process; what else is printed goes to stderr.
  static LauncherChannel of_standard_streams(std::string session);

  // What there is to wait for. After each wait `turn`, then `next` until there is none. Throws std::runtime_error for
  // what is no message.
  std::vector<pollfd> fds() const;
  void turn();
  std::optional<Message> next() { return reader_.next(); }
  // For so long, or until something has come.
  void wait(double seconds) const;

  bool is_lost() const { return lost_; }                        // nobody is there any more
  bool has_room() const;                                        // else ranks have to wait with what they write
  bool is_flushed() const { return lost_ || out_.is_empty(); }  // all that was sent is taken
  void send(const Message& message);
  void say(const std::string& text) { send({Message::say, 0, text}); }
  const std::string& session() const { return session_; }

 private:
  using Clock = std::chrono::steady_clock;

  Descriptor in_;
  Outbox out_;
  MessageReader reader_{false};
  bool lost_ = false;
  std::string session_;
  Clock::time_point last_sign_ = Clock::now();
};

}  // namespace drivetrain::program
