#include "launch/agent.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "launch/visible_devices.h"

namespace drivetrain::program {
namespace {

constexpr double kLastWordsMayTakeS = 10;

// CLIENT PORT SERVER PORT: the third.
std::string own_address(const std::string& session) {
  const size_t first = session.find(' '), second = session.find(' ', first + 1);
  if (second == std::string::npos) return "";
  return session.substr(second + 1, session.find(' ', second + 1) - second - 1);
}

}  // namespace

Agent::Agent(LauncherChannel channel) : channel_(std::move(channel)) {
  channel_.send({Message::hello, 0, packed({kAgentProtocol, DRIVETRAIN_RELEASE, own_address(channel_.session())})});
}

std::vector<pollfd> Agent::fds() const {
  std::vector<pollfd> list = channel_.fds();
  if (attempt_) attempt_->add_fds(list);
  return list;
}

double Agent::wait_s() const { return attempt_ ? attempt_->wait_s() : 1; }

void Agent::turn() {
  channel_.turn();
  while (const auto message = channel_.next())
    if (attempt_)
      attempt_->take(*message);
    else
      take(*message);
  if (!attempt_) return;
  attempt_->turn();
  if (attempt_->any_running()) return;
  attempt_->finish();
  attempt_.reset();
  done_ = true;
  channel_.send({.type = Message::bye});
}

void Agent::take(const Message& order) try {
  last_order_ = std::chrono::steady_clock::now();
  if (examination_.answer(order)) return;
  if (order.type == Message::prepare) prepare(PrepareOrder::of(order.text));
  if (order.type == Message::probe) {
    const std::vector<std::string> fields = unpacked(order.text);
    try_meeting(fields.at(0), std::stoi(fields.at(1)), 5);
    channel_.send({.type = Message::ready});
  }
  if (order.type == Message::config) config_ = config_of_text(order.text, order.rank);
  if (order.type == Message::start) order_ = StartOrder::of(order.text);
  if (order.type == Message::signal) end_signal_ = order.rank;
} catch (const HostError& e) {
  channel_.send({Message::refuse, e.code, e.what()});
}

void Agent::prepare(const PrepareOrder& order) {
  const std::string same = "; it has to be at the same path on every host";
  if (!order.folder.empty() && chdir(order.folder.c_str()) != 0)
    throw HostError(2, "the current folder " + order.folder + ": " + std::strerror(errno) + same);
  if (!order.config.empty() && access(order.config.c_str(), R_OK) != 0)
    throw HostError(2, "cannot read the config file " + order.config + ": " + std::strerror(errno) + same);
  for (const std::string& file : order.files)
    if (access(file.c_str(), R_OK) != 0) throw HostError(2, "cannot read " + file + ": " + std::strerror(errno) + same);
  if (!order.program.empty() && access(order.program.c_str(), X_OK) != 0)
    throw HostError(2, "cannot run " + order.program + ": " + std::strerror(errno) + same);
  if (!order.run_folder.empty() && access(order.run_folder.c_str(), R_OK | X_OK) != 0)
    throw HostError(8, "the folder of the run, with its checkpoints, is not there: " + order.run_folder + ": " +
                           std::strerror(errno) + "; it has to be on a file system that all hosts share");
  set_variables(order.environment);  // what the slots of this host mean may stand there
  if (!order.is_again) check_slots(order.slots, std::getenv("CUDA_VISIBLE_DEVICES"));
  check_setup(order.setup, static_cast<int>(order.slots.size()));
  if (!order.has_rank_0) return channel_.send({.type = Message::ready});
  meeting_ = open_meeting(order.master_addr, order.master_port, order.peers);
  channel_.send({Message::ready, 0, packed({meeting_.address, std::to_string(meeting_.port)})});
}

void Agent::start(SignalWatch& signals) {
  attempt_ = std::make_unique<Attempt>(*order_, config_, signals, channel_);
  attempt_->start(std::move(meeting_.listener));
}

void Agent::leave() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(kLastWordsMayTakeS);
  const auto turn = [this] {
    channel_.wait(0.25);
    channel_.turn();
    while (channel_.next()) {
    }
  };
  while (!channel_.is_flushed() && std::chrono::steady_clock::now() < end) turn();
  // MPICH's mpirun kills all tasks when one leaves whose rank has not ended MPI in order; ranks of others may be at
  // work. The launcher hangs up once all have said this, and the channel is lost with it or with the network.
  while (order_->local >= 0 && !channel_.is_lost()) turn();
}

}  // namespace drivetrain::program
