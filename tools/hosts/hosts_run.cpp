#include "hosts/hosts_run.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "hosts/host_problem.h"
#include "hosts/orders.h"
#include "launch/rank_log.h"
#include "launch/report.h"

namespace drivetrain::program {
namespace {

constexpr double kSilenceS = 10;  // of an agent, which speaks each second
constexpr double kByeMayTakeS = 5;

}  // namespace

HostsRun::HostsRun(const LaunchRequest& request, const RunOverHosts& wanted, SignalWatch& signals, Outlets& outlets)
    : request_(request), wanted_(wanted), signals_(signals), outlets_(outlets) {
  int first = 0;
  if (!request.hosts.starter.empty()) return;  // which task is where is known when they have come
  for (const Host& host : wanted.hosts) {
    Member member;
    const int slots = static_cast<int>(host.slots.size());
    member.first = first;
    member.count = !request.only_rank_0 ? slots : first == 0 ? 1 : 0;
    first += slots;
    members_.push_back(std::move(member));
  }
}

AttemptEnd HostsRun::run() {
  if (const int code = connect()) return could_not_start(code);
  if (const int code = prepare()) return could_not_start(code);
  start();
  watch();
  return report();
}

int HostsRun::connect() {
  if (!request_.hosts.starter.empty()) {
    if (const int code = connect_tasks()) return code;
  } else {
    for (size_t i = 0; i < members_.size(); ++i) {
      const Host& host = wanted_.hosts[i];
      members_[i].connection = std::make_unique<HostConnection>(
          host, ssh_command(request_.hosts, host.name, request_.command.front()), signals_.mask_before(), outlets_.err);
    }
  }
  return all_answer([](const Member& m) { return m.greeted; }, request_.hosts.hello_may_take_s,
                    "its agent did not answer");
}

int HostsRun::prepare() {
  PrepareOrder order;
  order.folder = std::filesystem::current_path();
  order.config = request_.config.number < 0 ? request_.config_path : "";  // else it is given to every agent
  order.files = request_.other_files;
  order.setup = request_.setup;
  order.program = request_.command.front();
  order.run_folder = wanted_.run_folder;
  order.is_again = wanted_.is_again;
  order.environment = ranks_environment();
  for (Member& member : members_) {
    PrepareOrder own = order;
    own.has_rank_0 = &member == &members_.front();
    own.slots = member.connection->host().slots;
    own.master_addr = wanted_.master_addr, own.master_port = request_.hosts.master_port;
    std::set<std::string> peers;  // several tasks may be on one host
    for (const Member& other : members_)
      if (own.has_rank_0 && &other != &member)
        peers.insert(other.address.empty() ? other.connection->name() : other.address);
    own.peers.assign(peers.begin(), peers.end());
    member.answered = false;
    member.connection->send({Message::prepare, 0, own.text()});
  }
  const auto answered = [](const Member& m) { return m.answered; };
  if (const int code = all_answer(answered, request_.hosts.answer_may_take_s, "it did not say whether it is ready"))
    return code;
  const std::vector<std::string> meeting = unpacked(members_.front().answer);
  master_addr_ = meeting.at(0), master_port_ = std::stoi(meeting.at(1));
  for (size_t i = 1; i < members_.size(); ++i) {
    members_[i].answered = false;
    members_[i].connection->send({Message::probe, 0, packed({master_addr_, std::to_string(master_port_)})});
  }
  return all_answer(answered, request_.hosts.answer_may_take_s, "it did not say whether it reaches rank 0's host");
}

std::vector<std::string> HostsRun::ranks_environment() const {
  std::vector<std::string> list = request_.hosts.environment;
  list.insert(list.end(), wanted_.environment.begin(), wanted_.environment.end());
  return list;
}

void HostsRun::start() {
  started_ = true;
  StartOrder order;
  order.world = starter_ ? request_.ranks : ranks_of(wanted_.hosts);
  order.only_rank_0 = request_.only_rank_0;
  order.master_addr = master_addr_, order.master_port = master_port_;
  if (!starter_) order.token = new_run_token();  // else they have it
  order.signals_reach_ranks = request_.hosts.starter == "slurm";
  // With the time that the ends need to come here, all is over within ten seconds.
  order.peers_may_take_s = std::min(request_.peers_may_take_s, 4.0);
  order.sigterm_may_take_s = std::min(request_.sigterm_may_take_s, 3.0);
  order.environment = ranks_environment();
  order.command = request_.command;
  order.setup = request_.setup, order.setup.logs_may_be_there = wanted_.is_again;
  const std::string config = request_.config.number < 0 ? "" : text_of(request_.config);
  if (!wanted_.resume.empty()) order.command.insert(order.command.end(), {"--resume", wanted_.resume});
  for (Member& member : members_) {
    if (member.count == 0) {
      member.said_bye = true;
      member.connection->hang_up();
      continue;
    }
    order.first = member.first, order.slots = member.connection->host().slots, order.local = member.local;
    for (int rank = member.first; rank < member.first + member.count; ++rank) {
      RankState state;
      state.number = rank, state.host = member.connection->name();
      const std::string prefix = rank == 0 ? "" : "[" + state.host + " rank " + std::to_string(rank) + "] ";
      state.out = std::make_unique<LineRelay>(Descriptor(), &outlets_.out, prefix);
      state.err = std::make_unique<LineRelay>(Descriptor(), &outlets_.err, prefix);
      if (request_.setup.has_logs()) state.err->pass_errors_only(), state.log = log_path(request_.setup, rank);
      ranks_.push_back(std::move(state));
    }
    if (request_.config.number >= 0) member.connection->send({Message::config, request_.config.number, config});
    member.connection->send({Message::start, 0, order.text()});
  }
}

void HostsRun::watch() {
  while (!all_ended() || (!all_said_bye() && now() - all_ended_at_ < kByeMayTakeS)) {
    turn(all_ended() ? 0.1 : 1);
    if (all_ended() && all_ended_at_ == kNever) all_ended_at_ = now();
    if (now() - failed_at_ < request_.hosts.end_may_take_s) continue;
    for (Member& member : members_)
      if (!member.said_bye && !member.lost) lose(member, "its agent did not tell the ranks' end in time");
  }
}

int HostsRun::all_answer(const std::function<bool(const Member&)>& done, double within_s, const std::string& what) {
  const double end = now() + within_s;
  const auto waits = [&](const Member& m) { return m.problem_code == 0 && !done(m); };
  while (std::any_of(members_.begin(), members_.end(), waits) && signal_ == 0 && now() < end)
    turn(std::min(1.0, end - now()));
  if (signal_ != 0) {
    say("stopped by signal " + std::to_string(signal_) + " before any rank was started");
    return 128 + signal_;
  }
  for (Member& member : members_)
    if (waits(member)) note_problem(member, 5, what + " within " + seconds_text(within_s));
  return report_problems();
}

void HostsRun::turn(double most_s) {
  std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}};
  for (const Member& member : members_) {
    const HostConnection& connection = *member.connection;
    fds.push_back({connection.from_fd(), POLLIN, 0});
    fds.push_back({connection.err_fd(), POLLIN, 0});
    fds.push_back({connection.to().is_empty() ? -1 : connection.to().fd(), POLLOUT, 0});
  }
  if (starter_) fds.push_back({starter_->fd(), POLLIN, 0});
  for (const pollfd& one : outlets_.rooms()) fds.push_back(one);
  poll(fds.data(), fds.size(), static_cast<int>(std::max(0.0, most_s) * 1000) + 1);
  if (starter_) starter_->pass();
  const double passed = now() - last_turn_;
  last_turn_ = now();
  for (Member& member : members_) {
    const bool was_open = member.connection->is_open();
    member.connection->flush();
    for (const Message& message : member.connection->receive(passed)) take(member, message);
    if (was_open && !member.connection->is_open() && !member.said_bye && !member.lost) note_no_connection(member);
    if (started_ && !member.said_bye && !member.lost && member.connection->silent_s() > kSilenceS)
      lose(member, "its agent has said nothing for " + seconds_text(kSilenceS));
  }
  while (const int number = signals_.next()) on_signal(number);
  turn_outlets();
}

// The channels are read all the same: they bring the ends of ranks, too.
void HostsRun::turn_outlets() {
  if (signal_ != 0 || failed_at_ != kNever) outlets_.end();
  outlets_.turn();
  if (!started_ || is_paused_ == !outlets_.take_more()) return;
  is_paused_ = !is_paused_;
  for (Member& member : members_)
    if (!member.said_bye && !member.lost) member.connection->send({Message::pause, is_paused_ ? 1 : 0});
}

void HostsRun::take(Member& member, const Message& message) {
  const auto own_rank = [&] {
    return started_ && message.rank >= member.first && message.rank < member.first + member.count;
  };
  switch (message.type) {
    case Message::hello:
      return greet(member, message);
    case Message::ready:
      member.answered = true, member.answer = message.text;
      return;
    case Message::refuse:
      return note_problem(member, message.rank, message.text);
    case Message::say:
      return say("on host " + member.connection->name() + ": " + message.text);
    case Message::flight:
      if (own_rank()) take_flight_record(member, message);
      return;
    case Message::points:
      return points_.take(message.text);
    case Message::bye:
      member.said_bye = true;
      if (!starter_) member.connection->hang_up();  // else all of them together: see Agent
      return;
    case Message::out:
      if (own_rank()) ranks_[static_cast<size_t>(message.rank)].out->take(message.text);
      return;
    case Message::err:
      if (own_rank()) ranks_[static_cast<size_t>(message.rank)].err->take(message.text);
      return;
    case Message::end:
      if (own_rank()) note_end(member, rank_end_of(message));
      return;
    default:
      return;
  }
}

void HostsRun::greet(Member& member, const Message& message) {
  const std::vector<std::string> fields = unpacked(message.text);
  member.greeted = true;
  member.connection->pass_errors();
  if (fields.size() > 2) member.address = fields[2];
  if (const HostProblem problem = version_problem(message, request_.command.front()); problem.code != 0)
    note_problem(member, problem.code, problem.text);
}

void HostsRun::say(const std::string& text) const { launcher_says(outlets_.err, text); }

}  // namespace drivetrain::program
