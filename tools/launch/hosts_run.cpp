#include "launch/hosts_run.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <system_error>

#include "launch/host_problem.h"
#include "launch/orders.h"
#include "launch/rank_log.h"
#include "launch/report.h"

namespace drivetrain::program {
namespace {

constexpr double kSilenceS = 10;  // of an agent, which speaks each second
constexpr double kByeMayTakeS = 5;
// The launcher has given it up by then, and its connection is closed. Whoever stops a launcher means it.
constexpr double kAgentMayStandS = 15;

}  // namespace

HostsRun::HostsRun(const LaunchRequest& request, const HostsToRun& wanted, SignalWatch& signals, Outlets& outlets)
    : request_(request), wanted_(wanted), signals_(signals), outlets_(outlets) {
  int first = wanted.first;
  if (!request.hosts.starter.empty() && !wanted.is_here) return;  // which task is where is known when they have come
  for (const Host& host : wanted.hosts) {
    Member member;
    const int slots = static_cast<int>(host.slots.size());
    member.first = first;
    member.count = !wanted.only_rank_0 ? slots : first == 0 ? 1 : 0;
    first += slots;
    members_.push_back(std::move(member));
  }
}

AttemptEnd HostsRun::run() {
  signals_.around_stops([this](bool stops) { stand_still(stops); });
  if (const int code = connect()) return could_not_start(code);
  if (const int code = prepare()) return could_not_start(code);
  start();
  watch();
  return report();
}

int HostsRun::connect() {
  if (wanted_.is_here) {
    connect_own_agent();
  } else if (!request_.hosts.starter.empty()) {
    if (const int code = connect_tasks()) return code;
  } else {
    for (size_t i = 0; i < members_.size(); ++i) {
      const Host& host = wanted_.hosts[i];
      members_[i].connection = std::make_unique<HostConnection>(
          host, ssh_command(request_.hosts, host.name, wanted_.command.front()), signals_.mask_before(), outlets_.err);
    }
  }
  return all_answer([](const Member& m) { return m.greeted; }, request_.hosts.hello_may_take_s,
                    "its agent did not answer");
}

void HostsRun::connect_own_agent() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::system_error(errno, std::generic_category(), "launch: socketpair");
  Descriptor out(fcntl(ends[0], F_DUPFD_CLOEXEC, 3));
  own_agent_.emplace(LauncherChannel(Descriptor(ends[0]), std::move(out), ""));
  members_.front().connection =
      std::make_unique<HostConnection>(wanted_.hosts.front(), Descriptor(ends[1]), outlets_.err);
}

int HostsRun::prepare() {
  PrepareOrder order;
  if (!wanted_.is_here) {
    order.folder = std::filesystem::current_path();
    order.config = request_.config.number < 0 ? request_.config_path : "";  // else it is given to every agent
    order.files = request_.other_files;
    order.program = wanted_.command.front();
    order.run_folder = wanted_.run_folder;
  }
  order.setup = wanted_.setup;
  order.is_again = wanted_.is_again;
  order.environment = wanted_.environment;
  order.master_addr = wanted_.master_addr, order.master_port = wanted_.master_port;
  for (Member& member : members_) {
    PrepareOrder own = order;
    own.has_rank_0 = member.first == 0;
    own.slots = member.connection->host().slots;
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
  master_addr_ = wanted_.master_addr, master_port_ = wanted_.master_port;
  if (members_.front().first != 0) return 0;  // rank 0 is another launcher's
  const std::vector<std::string> meeting = unpacked(members_.front().answer);
  master_addr_ = meeting.at(0), master_port_ = std::stoi(meeting.at(1));
  for (size_t i = 1; i < members_.size(); ++i) {
    members_[i].answered = false;
    members_[i].connection->send({Message::probe, 0, packed({master_addr_, std::to_string(master_port_)})});
  }
  return all_answer(answered, request_.hosts.answer_may_take_s, "it did not say whether it reaches rank 0's host");
}

StartOrder HostsRun::start_order() const {
  StartOrder order;
  order.world = wanted_.world, order.only_rank_0 = wanted_.only_rank_0;
  order.master_addr = master_addr_, order.master_port = master_port_;
  // Other launchers may be started earlier, and share a secret that their environment has.
  const bool has_other_launchers = wanted_.is_here && wanted_.world > ranks_of(wanted_.hosts);
  order.master_listens = !has_other_launchers;
  if (!has_other_launchers && !starter_) order.token = new_run_token();  // the starter's tasks have it
  order.begun_folder = wanted_.begun_folder;
  order.deadlines = request_.deadlines;
  order.signals_reach_ranks = request_.hosts.starter == "slurm" && !wanted_.is_here;
  order.environment = wanted_.environment, order.command = wanted_.command;
  order.setup = wanted_.setup, order.setup.logs_may_be_there = wanted_.is_again;
  if (wanted_.is_here) return order;
  // With the time that the ends need to come here, all is over within ten seconds.
  order.deadlines.peers_s = std::min(order.deadlines.peers_s, 4.0);
  order.deadlines.sigterm_s = std::min(order.deadlines.sigterm_s, 3.0);
  order.keeps_flight_records = true;
  order.may_stand_s = kAgentMayStandS;
  return order;
}

// On a terminal rank 0's two streams must stay in order, which a pipe for one of them would not keep. At a pipe that
// nobody reads it would wait for ever, whatever it is told.
RankLines HostsRun::lines_of(const Member& member, int number) {
  RankLines lines;
  lines.number = number;
  if (!wanted_.is_here) lines.host = member.connection->name();
  const std::string host = lines.host.empty() ? "" : lines.host + " ";
  const std::string prefix = number == 0 ? "" : "[" + host + "rank " + std::to_string(number) + "] ";
  const bool may_inherit = wanted_.is_here && number == 0 && !wanted_.setup.has_logs();
  if (!may_inherit || (outlets_.out.may_fill() && !isatty(outlets_.out.fd()))) lines.out.emplace(outlets_.out, prefix);
  if (!may_inherit || !isatty(outlets_.err.fd())) lines.err.emplace(outlets_.err, prefix);
  if (wanted_.setup.has_logs()) lines.err->pass_errors_only(), lines.log = log_path(wanted_.setup, number);
  return lines;
}

void HostsRun::start() {
  started_ = true;
  StartOrder order = start_order();
  const std::string config = request_.config.number < 0 ? "" : text_of(request_.config);
  for (Member& member : members_) {
    if (member.count == 0) {
      member.said_bye = true;
      member.connection->hang_up();
      continue;
    }
    order.first = member.first, order.slots = member.connection->host().slots, order.local = member.local;
    for (int number = member.first; number < member.first + member.count; ++number)
      ranks_.push_back(lines_of(member, number));
    const RankLines& first = rank(member.first);
    order.rank_0_out = first.out ? -1 : outlets_.out.fd(), order.rank_0_err = first.err ? -1 : outlets_.err.fd();
    if (request_.config.number >= 0) member.connection->send({Message::config, request_.config.number, config});
    member.connection->send({Message::start, 0, order.text()});
  }
}

void HostsRun::watch() {
  while (!all_ended() || (!all_said_bye() && now() - all_ended_at_ < kByeMayTakeS)) {
    turn(all_ended() ? 0.1 : 1);
    if (all_ended() && all_ended_at_ == kNever) all_ended_at_ = now();
    if (own_agent_ || now() - failed_at_ < request_.hosts.end_may_take_s) continue;
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
  if (own_agent_) {
    for (const pollfd& one : own_agent_->fds()) fds.push_back(one);
    most_s = std::min(most_s, own_agent_->wait_s());
  }
  poll(fds.data(), fds.size(), static_cast<int>(std::max(0.0, most_s) * 1000) + 1);
  if (starter_) starter_->pass();
  while (const int number = signals_.next()) on_signal(number);
  if (own_agent_) own_agent_->turn();
  if (own_agent_ && own_agent_->is_to_start()) own_agent_->start(signals_);
  const double passed = now() - last_turn_;
  last_turn_ = now();
  std::vector<Member*> open;
  for (Member& member : members_) {
    if (member.connection->is_open()) open.push_back(&member);
    member.connection->flush();
    receive(member, passed);
  }
  const auto is_closed = [](const Member* member) { return !member->connection->is_open(); };
  // Why an agent ended may stand in the words of another one, which came before: MPI ends all tasks when one fails.
  if (std::any_of(open.begin(), open.end(), is_closed))
    for (Member* const member : open) receive(*member, 0);
  for (Member* const member : open)
    if (is_closed(member) && !member->said_bye && !member->lost) note_no_connection(*member);
  for (Member& member : members_) {
    if (started_ && !member.said_bye && !member.lost && member.connection->silent_s() > kSilenceS)
      lose(member, "its agent has said nothing for " + seconds_text(kSilenceS));
  }
  turn_outlets();
}

void HostsRun::receive(Member& member, double passed_s) {
  for (const Message& message : member.connection->receive(passed_s)) take(member, message);
}

// The channels are read all the same: they bring the ends of ranks, too.
void HostsRun::turn_outlets() {
  if (signal_ != 0 || fails()) outlets_.end();
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
      return started_ ? note_start_problem(member, message) : note_problem(member, message.rank, message.text);
    case Message::say:
      return say((own_agent_ ? "" : "on host " + member.connection->name() + ": ") + message.text);
    case Message::stops:
      return pass_first_errors(ranks_);
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
      if (own_rank()) rank(message.rank).out->take(message.text);
      return;
    case Message::err:
      if (own_rank()) rank(message.rank).err->take(message.text);
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
  if (const HostProblem problem = version_problem(message, wanted_.command.front()); problem.code != 0)
    note_problem(member, problem.code, problem.text);
}

void HostsRun::say(const std::string& text) const { launcher_says(outlets_.err, text); }

}  // namespace drivetrain::program
