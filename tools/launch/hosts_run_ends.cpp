// How a run over hosts fails, loses hosts, and ends.
#include <algorithm>
#include <set>
#include <utility>

#include "cli/error_line.h"
#include "launch/host_problem.h"
#include "launch/hosts_run.h"
#include "launch/meeting.h"
#include "launch/report.h"

namespace drivetrain::program {
namespace {

constexpr double kFlightAgainS = 5;

// A scheduler signals the tasks of a job, not always their launcher.
bool were_preempted(const std::vector<RankEnd>& ends) {
  return std::all_of(ends.begin(), ends.end(), [](const RankEnd& end) { return end.code == 75 && !end.killed; });
}

template <class Member>
std::string ranks_text(const Member& member) {
  const std::string first = std::to_string(member.first);
  return member.count == 1 ? "rank " + first : "ranks " + first + "-" + std::to_string(member.first + member.count - 1);
}

}  // namespace

AttemptEnd HostsRun::could_not_start(int code) const {
  AttemptEnd end;
  end.code = code, end.signal = signal_, end.not_started = true;
  for (const Member& member : members_) {
    if (member.problem_code == 0) continue;
    end.lost_hosts.push_back(member.connection->name());
    if (!end.failure) end.failure = RankEnd{.rank = member.first, .code = member.problem_code};
    if (end.cause.empty()) end.cause = "host " + member.connection->name() + ": " + member.problem;
  }
  return end;
}

int HostsRun::report_problems() const {
  if (wanted_.is_here && members_.front().problem_code != 0)
    throw HostError(members_.front().problem_code, members_.front().problem);
  int code = 0;
  size_t count = 0;
  std::set<std::string> said;  // tasks of one host have the same to say
  for (const Member& member : members_) {
    if (member.problem_code == 0) continue;
    const std::string text = "host " + member.connection->name() + ": " + member.problem;
    const bool is_new = said.insert(text).second;
    if (is_new && wanted_.is_again)
      say(text);
    else if (is_new)
      outlets_.err.put(cli::error_line("launch: " + text, outlets_.err.fd()));
    if (code == 0) code = member.problem_code;
    ++count;
  }
  if (count > 0 && members_.size() > 1)
    say(std::to_string(count) + " of " +
        (starter_ ? std::to_string(members_.size()) + " tasks" : hosts_text(members_.size())) +
        " cannot take part; no rank was started");
  return code;
}

void HostsRun::note_problem(Member& member, int code, const std::string& text) {
  if (member.problem_code != 0) return;
  member.problem_code = code, member.problem = text;
}

void HostsRun::note_no_connection(Member& member) {
  if (started_) return lose(member, member.connection->reason());
  const HostProblem problem = connection_problem(*member.connection, wanted_.command.front(), member.greeted);
  note_problem(member, problem.code, problem.text);
}

void HostsRun::note_end(Member& member, RankEnd end) {
  RankLines& lines = rank(end.rank);
  if (lines.ended) return;
  lines.ended = true;
  end.after_s = now();
  ends_.push_back(end);
  if (starter_ && request_.hosts.starter != "slurm") starter_->keep_back();  // what MPIs say of it is less
  const bool as_asked = end.code == 0 || (signal_ != 0 && !end.killed && is_as_asked(end.code, signal_));
  if (!as_asked && failed_at_ == kNever) {
    failed_at_ = now();
    if (end.killed && !end.by_launcher && signal_ == 0 && !all_ended())
      say(lines.name() + " is lost: " + describe_end(end));
  }
  for (Member& other : members_)
    if (&other != &member && !other.said_bye && !other.lost) other.connection->send(message_of(end));
}

void HostsRun::lose(Member& member, const std::string& reason) {
  if (member.lost) return;
  member.lost = true, member.lost_by = reason;
  member.connection->kill_ssh();
  if (all_ended()) return say("host " + member.connection->name() + " was lost in the end: " + reason);
  // What ranks elsewhere say of a lost peer is its consequence.
  const bool blame = std::all_of(ends_.begin(), ends_.end(), [](const RankEnd& end) {
    return end.code == 0 || (end.code == 5 && end.fault.empty());
  });
  // At once: the others may take seconds to end.
  if (blame) say("host " + member.connection->name() + " is lost, with " + ranks_text(member) + ": " + reason);
  for (int number = member.first; number < member.first + member.count; ++number)
    if (!rank(number).ended)
      note_end(member, {number, 5, false, !blame, 0, blame ? "lost with its host: " + reason : ""});
  if (!blame) say("host " + member.connection->name() + " was lost too: " + reason);
}

void HostsRun::on_signal(int number) {
  if (number == SIGUSR2 && !started_) return;  // a question to ranks
  // As for the ranks: see Attempt.
  const bool is_reminder = number != SIGUSR2 && signal_ == SIGUSR1 && !std::exchange(reminded_, true);
  if (signal_ != 0 && (number == SIGINT || number == SIGTERM) && !is_reminder) outlets_.insist();
  if (signal_ == 0 && number != SIGUSR2) signal_ = number == SIGHUP ? SIGTERM : number;
  for (Member& member : members_)
    if (!member.lost) member.connection->send({Message::signal, number, ""});
}

void HostsRun::note_start_problem(const Member& member, const Message& message) {
  if (!own_agent_) return say("on host " + member.connection->name() + ": " + message.text);
  start_problem_ = message.text;
  outlets_.err.put(cli::error_line(message.text, outlets_.err.fd()));
}

// Of a rank alone what it has said is its own affair until it ends.
bool HostsRun::fails() const {
  return failed_at_ != kNever ||
         (ranks_.size() > 1 &&
          std::any_of(ranks_.begin(), ranks_.end(), [](const RankLines& r) { return !r.ended && r.said_error(); }));
}

// Before the ranks are started an agent takes any signal for the end.
void HostsRun::stand_still(bool stops) {
  if (own_agent_) own_agent_->stand_still(stops);
  for (Member& member : members_) {
    if (own_agent_ || !started_ || member.lost || member.said_bye) continue;
    member.connection->send({Message::signal, stops ? SIGSTOP : SIGCONT, ""});
    member.connection->flush();
  }
  if (stops)
    suspended_ = Clock::now();
  else
    begin_ += Clock::now() - suspended_;
}

bool HostsRun::all_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const RankLines& r) { return r.ended; });
}

bool HostsRun::all_said_bye() const {
  return std::all_of(members_.begin(), members_.end(), [](const Member& m) { return m.said_bye || m.lost; });
}

// One host tells that the run does not go on: what the ranks of the others do belongs to it.
void HostsRun::take_flight_record(const Member& from, const Message& message) {
  flight_.take(message.rank, message.text);
  if (now() - flight_asked_at_ < kFlightAgainS) return;
  flight_asked_at_ = now();
  for (Member& other : members_)
    if (&other != &from && !other.said_bye && !other.lost) other.connection->send({.type = Message::flight});
}

void HostsRun::tell_of_flight_records(bool failed) {
  if (!failed) return flight_.forget();
  for (const Member& member : members_)
    for (int rank = member.first; rank < member.first + member.count; ++rank)
      flight_.missing(rank, member.lost ? "host " + member.connection->name() + " was lost: " + member.lost_by
                                        : "it ended well, or before it had a record");
  if (flight_.any())
    say("the flight records of " + flight_.ranks() + " were brought from their hosts: `drivetrain flight " +
        flight_.folder() + "` reads them");
}

AttemptEnd HostsRun::report() {
  for (Member& member : members_)
    if (!member.said_bye && !member.lost) lose(member, "its agent did not say that all is ended");
  for (RankLines& rank : ranks_)
    for (std::optional<LineRelay>* relay : {&rank.out, &rank.err})
      if (*relay) (*relay)->finish();
  for (Member& member : members_) member.connection->hang_up();
  end_starter();
  Report report(ranks_, ends_, [this](const std::string& text) { say(text); });
  report.pass_errors();
  AttemptEnd end;
  end.code = launch_code(ends_, signal_), end.signal = signal_;
  end.failure = first_failure(ends_, signal_);
  if (starter_ && signal_ == 0 && were_preempted(ends_)) {
    say("all ranks were told to end by a signal that came to them alone, and have saved a checkpoint: exit 75");
  } else if (end.failure && !start_problem_.empty()) {
    end.cause = start_problem_;  // it is told
  } else if (end.failure) {
    report.name(*end.failure);
    const RankLines& lines = rank(end.failure->rank);
    end.cause = lines.name() + ": " + describe_end(*end.failure), end.error = lines.error();
  }
  tell_of_flight_records(end.failure.has_value());
  for (const Member& member : members_)
    if (member.lost) end.lost_hosts.push_back(member.connection->name());
  end.restart_point = points_.newest();
  end.has_new_checkpoint = points_.has_new_checkpoint();
  end.run_is_done = points_.run_is_done();
  return end;
}

}  // namespace drivetrain::program
