// `drivetrain bench rendezvous`: how long it takes until all ranks of a run know each other. Ranks are threads of this
// process, each with a connection of its own to rank 0's store over the loopback, as ranks of a launch have.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <latch>
#include <mutex>
#include <thread>

#include "bench/bench.h"
#include "bench/machine.h"
#include "bench/table.h"
#include "bench/timing.h"
#include "rendezvous/gather_values.h"
#include "rendezvous/rendezvous.h"

namespace drivetrain {
namespace {

constexpr double kMeetingMayTakeS = 120;
constexpr size_t kFactsBytes = 8 << 10;  // about what a run's configuration and libraries are

// As the launcher opens one for rank 0.
struct LoopbackListener {
  LoopbackListener() : fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET, address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (fd < 0 || bind(fd, any, size) != 0 || listen(fd, SOMAXCONN) != 0 || getsockname(fd, any, &size) != 0)
      throw fail(ErrorCode::communication, "bench rendezvous: cannot listen on 127.0.0.1");
    port = ntohs(address.sin_port);
  }
  int fd;
  int64_t port = 0;
};

// What every rank of a run does before its first step, but for what plugins exchange.
void meet(RankEnvironment env, const Value& facts) {
  const auto store = make_store(env, kMeetingMayTakeS);
  env.local_known = false;
  find_local_ranks(*store, env, kMeetingMayTakeS);
  check_arrival(*store, env, kMeetingMayTakeS);
  check_same(*store, env, facts, kMeetingMayTakeS);
  gather_values(*store, "memory", env, Value::object(), kMeetingMayTakeS);
}

// From the moment at which all threads run until the last rank has met all others and left.
double seconds_to_meet(int64_t ranks, const Value& facts) {
  const LoopbackListener listener;
  std::latch ready(ranks + 1);
  std::mutex mutex;
  std::exception_ptr failure;
  std::vector<std::thread> threads;
  std::atomic<bool> given_up = false;
  const auto add = [&](int64_t rank) {
    threads.emplace_back([&, rank] {
      RankEnvironment env{.rank = rank, .world_size = ranks, .local_rank = rank, .local_size = ranks};
      env.master_port = listener.port, env.token = "of this benchmark", env.master_listens = true;
      if (rank == 0) env.listen_fd = listener.fd;
      ready.arrive_and_wait();
      if (given_up) return;
      try {
        meet(env, facts);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    });
  };
  try {
    for (int64_t rank = 0; rank < ranks; ++rank) add(rank);
  } catch (...) {  // this host has no more threads
    given_up = true;
    ready.count_down(ranks + 1 - static_cast<int64_t>(threads.size()));
    for (std::thread& thread : threads) thread.join();
    throw;
  }
  ready.arrive_and_wait();
  const auto begin = std::chrono::steady_clock::now();
  for (std::thread& thread : threads) thread.join();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (failure) std::rethrow_exception(failure);
  return seconds;
}

}  // namespace

BenchReport bench_rendezvous(const BenchArguments& arguments) {
  const int64_t rounds = arguments.whole("--rounds");
  std::vector<int64_t> rank_counts{2, 8, 32, 128, 512};
  if (arguments.has("-n")) rank_counts = {arguments.whole("-n")};
  const BenchMachine machine = describe_machine();
  BenchReport report = report_on("rendezvous", machine);
  Value facts = Value::object();
  facts.set("config", std::string(kFactsBytes, 'x'));
  TextTable table({"ranks", "median", "least to most", "per rank"});
  Value list = Value::array();
  for (const int64_t ranks : rank_counts) {
    std::vector<double> times;
    for (int64_t round = 0; round < rounds; ++round) times.push_back(seconds_to_meet(ranks, facts));
    const Spread spread = spread_of(times);
    table.row({std::to_string(ranks), seconds_text(spread.median),
               concat(seconds_text(spread.min), " to ", seconds_text(spread.max)),
               seconds_text(spread.median / static_cast<double>(ranks))});
    Value one = Value::object();
    one.set("ranks", ranks);
    one.set("seconds", spread.to_value());
    list.items().push_back(std::move(one));
  }
  report.json.set("rounds", rounds);
  report.json.set("meetings", std::move(list));
  report.text += concat("ranks as threads that meet over rank 0's store, ", rounds, " rounds\n", table.text());
  return report;
}

}  // namespace drivetrain
