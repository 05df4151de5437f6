#include "board.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/host.h>
#include <drivetrain/toolkit/host_memory/segment.h>
#include <drivetrain/toolkit/standstill.h>

namespace drivetrain::toolkit::messages {
using Clock = std::chrono::steady_clock;

const char* const kGo = "go ";

// Ranks of one host follow each other, so the first one's number stands for it. What the kernel says is added because
// starters may count in another way, and because containers of one host do not see each other.
std::string host_of(const Services& services, bool hierarchy) {
  const int64_t first = hierarchy ? services.rank - services.local_rank : services.rank;
  return concat(first, " ", host_memory::host_mark(), " ", host_name(), " ", geteuid());
}

// 1000 questions per second at most, whatever the number of ranks.
Board::Board(const MessageSettings& settings, const Services& services, std::shared_ptr<Carrier> carrier)
    : AbortBoard(settings.plugin, services.store, services.rank, settings.timeout_s,
                 std::max(0.1, 0.001 * static_cast<double>(services.world_size))),
      plugin_(settings.plugin),
      host_(host_of(services, settings.hierarchy)),
      world_size_(services.world_size),
      carrier_(std::move(carrier)) {}

// Some carriers cannot be interrupted while they open a channel, so all ranks of a group go there or none does: the
// last to arrive and whoever gives up before ask for the one word that decides.
int64_t Board::meet(const std::vector<int64_t>& ranks, const std::string& label,
                    const std::function<bool()>& meanwhile) {
  const std::string where = concat("make_group of group \"", label, "\""), verdict = key("verdict/" + label);
  throw_if_aborted(where);
  if (hosts_.emplace(rank(), host_).second) store().set(key(concat("host/", rank())), host_);
  arrive(label);
  if (store().add(key("arrived/" + label), 1) == static_cast<int64_t>(ranks.size())) decide(label, true);
  auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s());
  constexpr std::chrono::microseconds kShort(200), kLong(20000);
  auto pause = kShort;
  while (!aborted() && !store().has(verdict)) {
    if (meanwhile()) pause = kShort;
    look();
    const std::vector<int64_t> missing = absent(ranks, label);
    const std::string gone = missing.empty() ? "" : closed(missing.front());
    if (!gone.empty()) raise(gone);
    if (!missing.empty() && Clock::now() > deadline) raise(late(missing, ranks, where));
    deadline += standstill_in([&] { std::this_thread::sleep_for(pause); });
    pause = std::min(2 * pause, kLong);
  }
  if (aborted()) decide(label, false);
  const std::string said = store().get(verdict, kValueS);
  if (said.starts_with(kGo)) return std::stoll(said.substr(std::strlen(kGo)));
  look();
  throw_if_aborted(where);
  throw fail(ErrorCode::communication, plugin_, ", ", where, ": another rank gave up");
}

std::vector<int> Board::hosts(const std::vector<int64_t>& ranks) {
  std::map<std::string, int> numbers;
  std::vector<int> hosts;
  for (const int64_t rank : ranks) {
    std::string& host = hosts_[rank];
    if (host.empty()) host = store().get(key(concat("host/", rank)), kValueS);
    hosts.push_back(numbers.emplace(host, static_cast<int>(numbers.size())).first->second);
  }
  return hosts;
}

void Board::decide(const std::string& label, bool go) {
  if (store().add(key("decided/" + label), 1) != 1) return;
  store().set(key("verdict/" + label), go ? concat(kGo, store().add(key("groups"), 1)) : "stop");
}

// The last one says so for all: a question to each rank would be many where there are many ranks.
void Board::close() noexcept {
  AbortBoard::close();
  try {
    if (store().add(key("closed/count"), 1) == world_size_) store().set(key("closed/all"), "");
  } catch (const std::exception&) {
    // Nobody is there to read it.
  }
}

bool Board::all_close_within(double seconds, const std::function<void()>& meanwhile) noexcept try {
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  for (double pause_s = 0.0005; !aborted() && !store().has(key("cause")); pause_s = std::min(2 * pause_s, period_s())) {
    if (store().has(key("closed/all"))) return true;
    if (Clock::now() > deadline) return false;
    meanwhile();
    std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
  }
  return false;
} catch (const std::exception&) {
  return false;
}

void Board::look() noexcept {
  try {
    take_over();
  } catch (const std::exception& e) {
    adopt(e.what());
  }
}

}  // namespace drivetrain::toolkit::messages
