#include "launch/examination.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>

#include "launch/outcome.h"
#include "launch/watched_command.h"

namespace drivetrain::program {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kConnectionMayTakeS = 5;

}  // namespace

int64_t clock_ns() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

bool Examination::answer(const Message& order) {
  switch (order.type) {
    case Message::clock:
      channel_.send({Message::ready, 0, std::to_string(clock_ns())});
      return true;
    case Message::listen:
      listen(order.text);
      return true;
    case Message::reach:
      reach(order.text);
      return true;
    case Message::examine:
      run(ExamineOrder::of(order.text));
      return true;
    default:
      return false;
  }
}

// At the address that a launch would take if rank 0 were here.
void Examination::listen(const std::string& text) {
  std::vector<std::string> peers = unpacked(text);
  const std::string own = peers.at(0);
  peers.erase(peers.begin());
  listening_ = open_meeting(own, 0, peers);
  channel_.send({Message::ready, 0, packed({listening_.address, std::to_string(listening_.port)})});
}

void Examination::reach(const std::string& text) {
  const std::vector<std::string> fields = unpacked(text);
  std::vector<MeetingPlace> places;
  for (size_t i = 0; i + 1 < fields.size(); i += 2) places.push_back({fields[i], std::stoi(fields[i + 1])});
  std::vector<std::string> answer;
  for (const Tried& tried : try_places(places, kConnectionMayTakeS)) {
    answer.push_back(tried.problem);
    answer.push_back(std::to_string(tried.took_s));
  }
  channel_.send({Message::ready, 0, packed(answer)});
}

void Examination::run(const ExamineOrder& order) {
  if (chdir(order.folder.c_str()) != 0)
    throw HostError(2, "the current folder " + order.folder + ": " + std::strerror(errno) +
                           "; it has to be at the same path on every host");
  WatchedCommand command(order.command, order.environment);
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(order.may_take_s));
  while (!command.has_ended()) {
    channel_.wait(0.02);
    channel_.turn();
    if (channel_.is_lost()) return;
    if (Clock::now() >= end)
      throw HostError(5, "`drivetrain doctor` there has not ended within " + seconds_text(order.may_take_s));
  }
  channel_.send({Message::ready, 0, packed({std::to_string(command.code()), command.out(), command.err()})});
}

}  // namespace drivetrain::program
