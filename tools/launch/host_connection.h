// The launcher's connection to the agent of one host: an ssh process with its three streams, or a socket.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/hosts_request.h"
#include "launch/line_relay.h"
#include "launch/message.h"

namespace drivetrain::program {

// What starts the agent of `host`, word by word.
std::vector<std::string> ssh_command(const HostsRequest& request, const std::string& host, const std::string& program);

class HostConnection {
 public:
  // Starts ssh. Throws std::system_error. `to`: where what ssh and the agent say themselves is passed on, after hello.
  HostConnection(const Host& host, const std::vector<std::string>& command, const void* signal_mask, Outlet& to);
  // To an agent that came here by itself.
  HostConnection(const Host& host, Descriptor socket, Outlet& to);
  ~HostConnection();  // kills ssh, which closes the channel, which ends what the agent started
  HostConnection(HostConnection&&) = delete;
  HostConnection& operator=(HostConnection&&) = delete;

  const std::string& name() const { return host_.name; }
  const Host& host() const { return host_; }
  int from_fd() const { return from_.get(); }
  int err_fd() const { return err_.get(); }
  const Outbox& to() const { return to_; }

  // What has come since the last time, and how long nothing has. `passed_s`: since then.
  std::vector<Message> receive(double passed_s);
  void send(const Message& message) { to_.put(message); }
  void flush() { to_.flush(); }
  void pass_errors();  // from now on what ssh says is passed on
  void hang_up();      // no more orders: the agent ends
  void kill_ssh();

  bool is_open() const { return from_.get() >= 0; }
  double silent_s() const { return silent_s_; }
  // Why there is no connection (any more), as far as ssh says; waits a moment for its end. After is_open() is false,
  // or kill_ssh().
  std::string reason();
  int exit_code() const { return code_; }  // of ssh; -1: it was killed or has not ended

 private:
  void reap(double within_s);

  const Host host_;
  pid_t pid_ = -1;
  Outbox to_;
  Descriptor from_, err_;
  MessageReader reader_{true};
  std::string said_;  // by ssh, until errors are passed
  std::string last_line_;
  std::optional<LineRelay> errors_;
  Outlet& errors_to_;
  double silent_s_ = 0;
  int code_ = -1;
  std::string fault_;
};

}  // namespace drivetrain::program
