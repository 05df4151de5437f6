// The agent's side of ssh's channel.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "hosts/message.h"
#include "launch/other_hosts.h"

namespace drivetrain::program {

class LauncherChannel : public OtherHosts {
 public:
  // Takes stdin and stdout; what else is printed goes to stderr. `session`: the ends of the connection in the form of
  // SSH_CONNECTION; "": they are not known.
  explicit LauncherChannel(std::string session);

  // The next order; nothing: none came within `within_s`, or the channel is closed.
  std::optional<Message> order(double within_s);
  bool is_lost() const { return lost_; }
  const std::string& session() const { return session_; }  //
  void send(const Message& message) { out_.put(message); }
  // Until all that was sent is taken, for at most `within_s`.
  void flush(double within_s);

  std::vector<pollfd> fds() const override;
  bool takes_output() const override;
  News news() override;
  void output(int rank, bool is_error, const std::string& bytes) override;
  void ended(const RankEnd& end) override;
  void restart_points(const std::string& bytes) override;
  void said(const std::string& text) override;
  void flight_record(int rank, const std::string& bytes) override;

 private:
  using Clock = std::chrono::steady_clock;
  void receive();
  void note_time();

  Descriptor in_;
  Outbox out_;
  MessageReader reader_{false};
  bool lost_ = false, paused_ = false;
  std::string session_;
  Clock::time_point last_sign_ = Clock::now();
};

}  // namespace drivetrain::program
