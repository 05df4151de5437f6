// LibTorch's TCPStore behind our Store: clean messages instead of its stack traces, waits that leave the connection
// free for other threads, and a server that outlives its clients' last question.
#include "compose/store_tcp.h"

#include <c10/util/Flags.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include <drivetrain/error.h>

C10_DECLARE_int(caffe2_log_level);

namespace drivetrain {
namespace {

using StoreClock = std::chrono::steady_clock;
constexpr const char* kLeft = "store/left";

// LibTorch logs every lost connection with a stack trace; our errors say it in one line.
class QuietLibTorch {
 public:
  QuietLibTorch() {
    const std::lock_guard lock(mutex_);
    if (quiet_++ == 0) level_ = std::exchange(FLAGS_caffe2_log_level, 3);  // fatal only
  }
  ~QuietLibTorch() {
    const std::lock_guard lock(mutex_);
    if (--quiet_ == 0) FLAGS_caffe2_log_level = level_;
  }

 private:
  // The level is the process's, and several stores may be at work.
  static inline std::mutex mutex_;
  static inline int quiet_ = 0, level_ = 0;
};

// LibTorch asks the name server for the name of every address it connects to, just to log it: seconds where no name
// server answers. Within this scope the calling thread's resolver has none, so it keeps to /etc/hosts and numbers.
class NoNameServer {
 public:
  NoNameServer() {
    if ((_res.options & RES_INIT) == 0) res_init();
    servers_ = std::exchange(_res.nscount, 0);
  }
  ~NoNameServer() { _res.nscount = servers_; }

 private:
  int servers_;
};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

struct Probe {
  std::string address;  // numeric, of what accepted; empty if nothing did
  std::string reason;
};

// Who accepts connections there? Asked before LibTorch is, which would print its failures.
Probe try_connect(const std::string& host, int64_t port) {
  addrinfo hints = {}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int failed = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (failed != 0) return {"", gai_strerror(failed)};
  Probe probe{"", "no address"};
  for (const addrinfo* a = list; a != nullptr && probe.address.empty(); a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0) continue;
    char number[NI_MAXHOST] = "";
    if (connect(fd, a->ai_addr, a->ai_addrlen) != 0)
      probe.reason = strerror(errno);
    else if (getnameinfo(a->ai_addr, a->ai_addrlen, number, sizeof number, nullptr, 0, NI_NUMERICHOST) == 0)
      probe.address = number;
    close(fd);
  }
  freeaddrinfo(list);
  return probe;
}

class TcpStore final : public Store {
 public:
  TcpStore(const RankEnvironment& env, double timeout_s)
      : world_size_(env.world_size),
        serves_(env.rank == 0),
        rank_(env.rank),
        address_(concat(env.master_addr, ":", env.master_port)) {
    const auto deadline =
        StoreClock::now() + std::chrono::duration_cast<StoreClock::duration>(std::chrono::duration<double>(timeout_s));
    // The server's own client goes over the loopback: MASTER_ADDR need not be reachable from its own host.
    const std::string server = serves_ ? "127.0.0.1" : find_server(env, deadline, timeout_s);
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(env.master_port);
    options.isServer = serves_;
    options.waitWorkers = false;
    options.timeout = std::max(std::chrono::milliseconds(1000),
                               std::chrono::duration_cast<std::chrono::milliseconds>(deadline - StoreClock::now()));
    if (serves_ && env.listen_fd >= 0) options.masterListenFd = env.listen_fd;
    const QuietLibTorch quiet;
    const NoNameServer numbers_only;
    try {
      store_ = c10::make_intrusive<c10d::TCPStore>(server, options);
    } catch (const c10::Error& e) {
      if (serves_)
        throw fail(ErrorCode::communication, "rank 0 cannot listen on MASTER_PORT ", env.master_port, ": ",
                   first_line(e.what_without_backtrace()), ". Choose another MASTER_PORT or end what uses it.");
      throw fail(ErrorCode::communication, "rank ", rank_, ": something listens on ", address_,
                 " (MASTER_ADDR:MASTER_PORT), but rank 0 did not answer there within ", timeout_s,
                 " s: ", first_line(e.what_without_backtrace()));
    }
  }

  ~TcpStore() override {
    try {
      if (!serves_) {
        set(concat(kLeft, "/", rank_), "");
        add(kLeft, 1);
        return;
      }
      const auto deadline = StoreClock::now() + std::chrono::seconds(1);
      while (add(kLeft, 0) < world_size_ - 1 && StoreClock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    } catch (const std::exception&) {
      // The server is gone, so nobody is waiting for this rank's word.
    }
  }

  void set(const std::string& key, const std::string& value) override {
    call([&] { store().set(key, value); });
  }
  bool has(const std::string& key) override {
    return call([&] { return store().check({key}); });
  }
  int64_t add(const std::string& key, int64_t delta) override {
    return call([&] { return store().add(key, delta); });
  }

  // Asks again and again: TCPStore's own wait would keep the connection from other threads.
  std::string get(const std::string& key, double timeout_s) override {
    const auto deadline = StoreClock::now() + std::chrono::duration<double>(timeout_s);
    for (auto pause = std::chrono::microseconds(100); !has(key);
         pause = std::min(2 * pause, std::chrono::microseconds(20000))) {
      if (StoreClock::now() > deadline)
        throw fail(ErrorCode::communication, "no rank set \"", key, "\" in the store at ", address_, " within ",
                   timeout_s, " s");
      std::this_thread::sleep_for(pause);
    }
    return call([&] { return store().get_to_str(key); });
  }

 private:
  // The base class: TCPStore hides the calls that take strings.
  c10d::Store& store() { return *store_; }

  template <class Call>
  auto call(const Call& make_call) -> decltype(make_call()) {
    const QuietLibTorch quiet;
    const NoNameServer numbers_only;
    try {
      return make_call();
    } catch (const c10::Error& e) {
      throw fail(ErrorCode::communication, "rank ", rank_, ": the store of rank 0 at ", address_,
                 " is gone, so rank 0 has ended: ", first_line(e.what_without_backtrace()));
    }
  }

  std::string find_server(const RankEnvironment& env, StoreClock::time_point deadline, double timeout_s) const {
    for (;;) {
      const Probe probe = try_connect(env.master_addr, env.master_port);
      if (!probe.address.empty()) return probe.address;
      if (StoreClock::now() > deadline)
        throw fail(ErrorCode::communication, "rank ", rank_, ": rank 0 did not open ", address_,
                   " (MASTER_ADDR:MASTER_PORT) within ", timeout_s, " s: ", probe.reason);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  const int64_t world_size_;
  const bool serves_;
  const int64_t rank_;
  const std::string address_;
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace

std::shared_ptr<Store> make_tcp_store(const RankEnvironment& env, double timeout_s) {
  return std::make_shared<TcpStore>(env, timeout_s);
}

}  // namespace drivetrain
