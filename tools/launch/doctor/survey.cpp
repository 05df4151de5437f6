#include "launch/doctor/survey.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>

#include <drivetrain/error.h>

#include "base/printable.h"
#include "launch/examination.h"
#include "launch/orders.h"
#include "launch/outcome.h"

namespace drivetrain::program {
namespace {

constexpr int kClockQuestions = 8;
constexpr int kConfig = 2, kCommunication = 5;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return printable(text.substr(text.rfind('\n') + 1));
}

}  // namespace

SurveyReport Survey::run() {
  connect();
  measure_clocks();
  listen();
  reach();
  examine();
  SurveyReport report;
  for (Member& member : members_) {
    if (!member.clocks.empty()) member.report.clock = clock_offset(member.clocks);
    member.connection->hang_up();
    report.hosts.push_back(std::move(member.report));
  }
  report.pairs = std::move(pairs_);
  return report;
}

void Survey::connect() {
  sigset_t mask;
  sigprocmask(SIG_SETMASK, nullptr, &mask);
  for (const Host& host : request_.hosts.hosts) {
    Member member;
    member.report.name = host.name;
    member.connection = std::make_unique<HostConnection>(
        host, ssh_command(request_.hosts, host.name, request_.command.front()), &mask, errors_);
    member.waits = true;
    members_.push_back(std::move(member));
  }
  wait(request_.hello_may_take_s, "its agent did not answer", {});
}

// One after the other, so that no answer waits for another one.
void Survey::measure_clocks() {
  for (int i = 0; i < kClockQuestions; ++i)
    ask(
        [](Member& member) {
          member.sent_ns = clock_ns();
          return Message{.type = Message::clock};
        },
        [](Member& member, const std::string& answer) {
          member.clocks.push_back({member.sent_ns, std::stoll(answer), clock_ns()});
        },
        request_.answer_may_take_s, "it did not tell the time");
}

void Survey::listen() {
  ask(
      [this](Member& member) -> std::optional<Message> {
        std::vector<std::string> order{""};
        bool is_alone = true;
        for (const Member& other : members_) {
          if (&other == &member || other.is_out) continue;
          is_alone = false;
          if (!is_loopback(other.report.address)) order.push_back(other.report.address);
        }
        if (is_alone) return std::nullopt;
        if (order.size() == 1) order.front() = member.report.address;  // the other one is this host, by its loopback
        return Message{Message::listen, 0, packed(order)};
      },
      [](Member& member, const std::string& answer) {
        const std::vector<std::string> fields = unpacked(answer);
        member.report.listens_at = fields.at(0), member.report.port = std::stoi(fields.at(1));
      },
      request_.answer_may_take_s, "it did not open a port");
}

void Survey::reach() {
  std::map<const Member*, std::vector<size_t>> wanted;
  ask(
      [&](Member& member) -> std::optional<Message> {
        std::vector<std::string> places;
        for (size_t to = 0; to < members_.size(); ++to) {
          const Member& other = members_[to];
          if (&other == &member || other.is_out || other.report.port == 0) continue;
          wanted[&member].push_back(to);
          places.insert(places.end(), {other.report.listens_at, std::to_string(other.report.port)});
        }
        if (places.empty()) return std::nullopt;
        return Message{Message::reach, 0, packed(places)};
      },
      [&](Member& member, const std::string& answer) {
        const std::vector<std::string> fields = unpacked(answer);
        const std::vector<size_t>& tried = wanted[&member];
        for (size_t i = 0; i < tried.size(); ++i)
          pairs_.push_back({static_cast<size_t>(&member - members_.data()), tried[i], fields.at(2 * i),
                            std::stod(fields.at(2 * i + 1))});
      },
      request_.answer_may_take_s, "it did not say which hosts it reaches");
  std::sort(pairs_.begin(), pairs_.end(),
            [](const PairReport& a, const PairReport& b) { return std::pair(a.from, a.to) < std::pair(b.from, b.to); });
}

void Survey::examine() {
  ExamineOrder order;
  order.folder = std::filesystem::current_path();
  order.may_take_s = request_.doctor_may_take_s;
  order.environment = request_.hosts.environment;
  order.command = request_.command;
  ask(
      [&](Member&) {
        return Message{Message::examine, 0, order.text()};
      },
      [this](Member& member, const std::string& answer) {
        const std::vector<std::string> fields = unpacked(answer);
        const std::string code = fields.at(0), said = fields.at(1), errors = fields.at(2);
        try {
          member.report.doctor = parse_json(said, "doctor of host " + member.report.name);
          if (!member.report.doctor.find("findings")) throw fail(ErrorCode::config, "it has no findings");
        } catch (const Error& e) {
          member.report.doctor = Value();
          note(member, {code == "3" ? 3 : kConfig, "`drivetrain doctor --json` there ended with exit " + code + ": " +
                                                       (errors.empty() ? std::string(e.what()) : last_line(errors))});
        }
      },
      // The agent itself watches over the command's time.
      request_.doctor_may_take_s + request_.answer_may_take_s, "it did not say what its doctor found");
}

void Survey::ask(const Order& order, const Answer& answer, double within_s, const std::string& what) {
  for (Member& member : members_) {
    if (member.is_out) continue;
    if (const auto message = order(member)) member.waits = true, member.connection->send(*message);
  }
  wait(within_s, what, answer);
}

void Survey::wait(double within_s, const std::string& what, const Answer& answer) {
  const auto waits = [](const Member& member) { return member.waits; };
  const double end = seconds_now() + within_s;
  while (std::any_of(members_.begin(), members_.end(), waits) && seconds_now() < end)
    turn(std::min(1.0, end - seconds_now()), answer);
  for (Member& member : members_)
    if (member.waits) leave_out(member, {kCommunication, what + " within " + seconds_text(within_s)});
}

void Survey::turn(double most_s, const Answer& answer) {
  std::vector<pollfd> fds;
  for (const Member& member : members_) {
    const HostConnection& connection = *member.connection;
    fds.push_back({connection.from_fd(), POLLIN, 0});
    fds.push_back({member.is_out ? -1 : connection.err_fd(), POLLIN, 0});
    fds.push_back({connection.to().is_empty() ? -1 : connection.to().fd(), POLLOUT, 0});
  }
  const double begin = seconds_now();
  poll(fds.data(), fds.size(), static_cast<int>(std::max(0.0, most_s) * 1000) + 1);
  const double passed = seconds_now() - begin;
  for (size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    if (member.is_out || (fds[3 * i].revents | fds[3 * i + 1].revents | fds[3 * i + 2].revents) == 0) continue;
    member.connection->flush();
    for (const Message& message : member.connection->receive(passed)) take(member, message, answer);
    if (!member.is_out && !member.connection->is_open())
      leave_out(member, connection_problem(*member.connection, request_.command.front(), member.greeted));
  }
}

void Survey::take(Member& member, const Message& message, const Answer& answer) {
  if (message.type == Message::hello && !member.greeted) {
    const std::vector<std::string> fields = unpacked(message.text);
    member.greeted = true, member.waits = false;
    member.connection->pass_errors();
    if (fields.size() > 2) member.report.address = fields[2];
    if (member.report.address.empty()) member.report.address = member.report.name;
    if (const HostProblem problem = version_problem(message, request_.command.front()); problem.code != 0)
      leave_out(member, problem);
  } else if (message.type == Message::ready && member.waits) {
    member.waits = false;
    try {
      if (answer) answer(member, message.text);
    } catch (const std::exception&) {
      leave_out(member, {kCommunication, "it sent an answer that cannot be read"});
    }
  } else if (message.type == Message::refuse && member.waits) {
    member.waits = false;
    note(member, {message.rank, message.text});
  }
}

void Survey::note(Member& member, const HostProblem& problem) { member.report.problems.push_back(problem); }

void Survey::leave_out(Member& member, const HostProblem& problem) {
  note(member, problem);
  member.is_out = true, member.waits = false;
  member.connection->kill_ssh();
}

}  // namespace drivetrain::program
