#include "hosts/hosts_run.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "hosts/orders.h"
#include "launch/report.h"

namespace drivetrain::program {
namespace {

constexpr double kSilenceS = 10;  // of an agent, which speaks each second
constexpr double kByeMayTakeS = 5;

// A scheduler signals the tasks of a job, not always their launcher.
bool were_preempted(const std::vector<RankEnd>& ends) {
  return std::all_of(ends.begin(), ends.end(), [](const RankEnd& end) { return end.code == 75 && !end.killed; });
}

const std::string& own_program() {
  static const std::string path = std::filesystem::read_symlink("/proc/self/exe");
  return path;
}

}  // namespace

HostsRun::HostsRun(const LaunchRequest& request) : request_(request) {
  int first = 0;
  if (!request.hosts.starter.empty()) return;  // which task is where is known when they have come
  for (const Host& host : request.hosts.hosts) {
    Member member;
    const int slots = static_cast<int>(host.slots.size());
    member.first = first;
    member.count = !request.only_rank_0 ? slots : first == 0 ? 1 : 0;
    first += slots;
    members_.push_back(std::move(member));
  }
}

int HostsRun::run() {
  if (const int code = connect()) return code;
  if (const int code = prepare()) return code;
  start();
  return watch();
}

int HostsRun::connect() {
  if (!request_.hosts.starter.empty()) {
    if (const int code = connect_tasks()) return code;
  } else {
    for (size_t i = 0; i < members_.size(); ++i) {
      const Host& host = request_.hosts.hosts[i];
      members_[i].connection = std::make_unique<HostConnection>(
          host, ssh_command(request_.hosts, host.name, own_program()), signals_.mask_before(), request_.err);
    }
  }
  return all_answer([](const Member& m) { return m.greeted; }, request_.hosts.hello_may_take_s,
                    "its agent did not answer");
}

int HostsRun::prepare() {
  PrepareOrder order;
  order.folder = std::filesystem::current_path();
  order.config = request_.config_path;
  order.program = request_.command.front();
  for (Member& member : members_) {
    PrepareOrder own = order;
    own.has_rank_0 = &member == &members_.front();
    own.master_addr = request_.hosts.master_addr, own.master_port = request_.hosts.master_port;
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

void HostsRun::start() {
  started_ = true;
  StartOrder order;
  order.world = request_.ranks;
  order.only_rank_0 = request_.only_rank_0;
  order.master_addr = master_addr_, order.master_port = master_port_;
  if (!starter_) order.token = new_run_token();  // else they have it
  order.signals_reach_ranks = request_.hosts.starter == "slurm";
  // With the time that the ends need to come here, all is over within ten seconds.
  order.peers_may_take_s = std::min(request_.peers_may_take_s, 4.0);
  order.sigterm_may_take_s = std::min(request_.sigterm_may_take_s, 3.0);
  order.environment = request_.hosts.environment;
  order.command = request_.command;
  if (!request_.resume.empty()) order.command.insert(order.command.end(), {"--resume", request_.resume});
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
      state.out = std::make_unique<LineRelay>(Descriptor(), request_.out, prefix);
      state.err = std::make_unique<LineRelay>(Descriptor(), request_.err, prefix);
      ranks_.push_back(std::move(state));
    }
    member.connection->send({Message::start, 0, order.text()});
  }
}

int HostsRun::watch() {
  while (!all_ended() || (!all_said_bye() && now() - all_ended_at_ < kByeMayTakeS)) {
    turn(all_ended() ? 0.1 : 1);
    if (all_ended() && all_ended_at_ == kNever) all_ended_at_ = now();
    if (now() - failed_at_ < request_.hosts.end_may_take_s) continue;
    for (Member& member : members_)
      if (!member.said_bye && !member.lost) lose(member, "its agent did not tell the ranks' end in time");
  }
  return report();
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

int HostsRun::report_problems() const {
  int code = 0;
  size_t count = 0;
  std::set<std::string> said;  // tasks of one host have the same to say
  for (const Member& member : members_) {
    if (member.problem_code == 0) continue;
    const std::string text = "host " + member.connection->name() + ": " + member.problem;
    if (said.insert(text).second) write_text(request_.err, "drivetrain: error: launch: " + text + "\n");
    if (code == 0) code = member.problem_code;
    ++count;
  }
  if (count > 0 && members_.size() > 1)
    say(std::to_string(count) + " of " +
        (starter_ ? std::to_string(members_.size()) + " tasks" : hosts_text(members_.size())) +
        " cannot take part; no rank was started");
  return code;
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
    case Message::bye:
      member.said_bye = true;
      return member.connection->hang_up();
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
  if (fields.size() > 1 && fields[0] == kAgentProtocol && fields[1] == DRIVETRAIN_RELEASE) return;
  note_problem(member, 2,
               "it has drivetrain " + (fields.size() > 1 ? fields[1] : std::string("of an unknown version")) + " at " +
                   own_program() + ", and this host " DRIVETRAIN_RELEASE "; install the same version on both");
}

void HostsRun::note_problem(Member& member, int code, const std::string& text) {
  if (member.problem_code != 0) return;
  member.problem_code = code, member.problem = text;
}

void HostsRun::note_no_connection(Member& member) {
  const std::string reason = member.connection->reason();
  const int code = member.connection->exit_code();
  if (started_) return lose(member, reason);
  if (reason.find("cannot run ssh") != std::string::npos)
    return note_problem(member, 2, "this host has no ssh to reach it with: " + reason);
  if (code == 126 || code == 127)
    return note_problem(member, 2,
                        "there is no program " + own_program() +
                            " that can be run; install Drivetrain at the same path on every host (" + reason + ")");
  note_problem(member, 5,
               member.greeted ? "the connection was lost: " + reason
                              : "it cannot be reached by ssh: " + reason + "; `ssh " + member.connection->name() +
                                    " true` has to work without a question");
}

void HostsRun::note_end(Member& member, RankEnd end) {
  RankState& rank = ranks_[static_cast<size_t>(end.rank)];
  if (rank.ended) return;
  rank.ended = true;
  end.after_s = now();
  ends_.push_back(end);
  if (starter_ && request_.hosts.starter != "slurm") starter_->keep_back();  // what MPIs say of it is less
  const bool as_asked = end.code == 0 || (signal_ != 0 && !end.killed && is_as_asked(end.code, signal_));
  if (!as_asked && failed_at_ == kNever) failed_at_ = now();
  for (Member& other : members_)
    if (&other != &member && !other.said_bye && !other.lost) other.connection->send(message_of(end));
}

void HostsRun::lose(Member& member, const std::string& reason) {
  if (member.lost) return;
  member.lost = true;
  member.connection->kill_ssh();
  if (all_ended()) return say("host " + member.connection->name() + " was lost in the end: " + reason);
  // What ranks elsewhere say of a lost peer is its consequence.
  const bool blame = std::all_of(ends_.begin(), ends_.end(), [](const RankEnd& end) {
    return end.code == 0 || (end.code == 5 && end.fault.empty());
  });
  for (int rank = member.first; rank < member.first + member.count; ++rank)
    if (!ranks_[static_cast<size_t>(rank)].ended)
      note_end(member, {rank, 5, false, !blame, 0, blame ? "lost with its host: " + reason : ""});
  if (!blame) say("host " + member.connection->name() + " was lost too: " + reason);
}

void HostsRun::on_signal(int number) {
  if (signal_ == 0) signal_ = number == SIGHUP ? SIGTERM : number;
  for (Member& member : members_)
    if (!member.lost) member.connection->send({Message::signal, number, ""});
}

bool HostsRun::all_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const RankState& r) { return r.ended; });
}

bool HostsRun::all_said_bye() const {
  return std::all_of(members_.begin(), members_.end(), [](const Member& m) { return m.said_bye || m.lost; });
}

int HostsRun::report() {
  for (Member& member : members_)
    if (!member.said_bye && !member.lost) lose(member, "its agent did not say that all is ended");
  for (RankState& rank : ranks_) rank.out->finish(), rank.err->finish();
  end_starter();
  const Report report(ranks_, ends_, [this](const std::string& text) { say(text); });
  report.pass_errors();
  const auto failure = first_failure(ends_, signal_);
  if (starter_ && signal_ == 0 && were_preempted(ends_))
    say("all ranks were told to end by a signal that came to them alone, and have saved a checkpoint: exit 75");
  else if (failure)
    report.name(*failure);
  return launch_code(ends_, signal_);
}

void HostsRun::say(const std::string& text) const { launcher_says(request_.err, text); }

}  // namespace drivetrain::program
