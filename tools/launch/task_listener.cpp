#include "launch/task_listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/secret.h"

namespace drivetrain::program {
namespace {

constexpr double kGreetingMayTakeS = 5;
constexpr size_t kLongestTaskLine = 512, kMostGuests = 4096;
constexpr size_t kMostLetInAtOnce = 64;  // so that a flood of strangers keeps nobody from his turn

// Both kinds of addresses where the kernel has IPv6.
Descriptor listen_everywhere(int& port) {
  sockaddr_in6 any = {};
  any.sin6_family = AF_INET6, any.sin6_addr = in6addr_any;
  socklen_t size = sizeof any;
  auto* raw = reinterpret_cast<sockaddr*>(&any);
  const int no = 0;
  Descriptor wide(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (wide.get() >= 0 && setsockopt(wide.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) == 0 &&
      bind(wide.get(), raw, size) == 0 && listen(wide.get(), SOMAXCONN) == 0 &&
      getsockname(wide.get(), raw, &size) == 0) {
    port = ntohs(any.sin6_port);
    return wide;
  }
  sockaddr_in narrow = {};
  narrow.sin_family = AF_INET;
  size = sizeof narrow;
  raw = reinterpret_cast<sockaddr*>(&narrow);
  Descriptor old(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (old.get() < 0 || bind(old.get(), raw, size) != 0 || listen(old.get(), SOMAXCONN) != 0 ||
      getsockname(old.get(), raw, &size) != 0)
    throw std::system_error(errno, std::generic_category(), "launch: no port for the tasks to come to");
  port = ntohs(narrow.sin_port);
  return old;
}

// They leave room for the connections of tasks that have come.
size_t most_guests() {
  rlimit limit = {};
  const bool is_known = getrlimit(RLIMIT_NOFILE, &limit) == 0;
  return is_known ? std::clamp<size_t>(limit.rlim_cur / 2, 1, kMostGuests) : kMostGuests;
}

bool is_out_of_files(int error) { return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM; }

std::string address_it_came_to(const Descriptor& socket) {
  sockaddr_storage own = {};
  socklen_t size = sizeof own;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) return "";
  return address_text(reinterpret_cast<sockaddr*>(&own));
}

}  // namespace

TaskListener::TaskListener(bool only_here) : most_guests_(most_guests()) {
  sign_.key = new_run_token();
  sign_.network = network_of_this_process();
  listener_ = only_here ? listen_on_free_port(sign_.port) : listen_everywhere(sign_.port);
  sign_.addresses = only_here ? std::vector<std::string>{"127.0.0.1"} : addresses_for_others();
  fcntl(listener_.get(), F_SETFL, O_NONBLOCK);
}

std::vector<pollfd> TaskListener::fds() const {
  std::vector<pollfd> list{{listener_.get(), POLLIN, 0}};
  for (const Guest& guest : guests_) list.push_back({guest.socket.get(), POLLIN, 0});
  return list;
}

void TaskListener::send_one_away() {
  const auto stranger =
      std::find_if(guests_.begin(), guests_.end(), [](const Guest& one) { return one.hello.empty(); });
  guests_.erase(stranger == guests_.end() ? guests_.begin() : stranger);
}

void TaskListener::accept_some(double now) {
  for (size_t i = 0; i < kMostLetInAtOnce; ++i) {
    if (guests_.size() >= most_guests_) send_one_away();
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() >= 0) {
      const int yes = 1;
      setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      std::string secret = sign_.secret(address_it_came_to(socket));
      guests_.push_back({std::move(socket), now, std::move(secret)});
    } else if (!is_out_of_files(errno)) {
      return;
    } else if (guests_.empty()) {
      poll(nullptr, 0, 10);  // who knocks stays in the queue until a file is closed
      return;
    } else {
      send_one_away();
    }
  }
}

std::vector<Task> TaskListener::let_in(double now) {
  accept_some(now);
  std::vector<Task> came;
  for (Guest& guest : guests_) hear(guest, now, came);
  std::erase_if(guests_, [](const Guest& guest) { return guest.done; });
  return came;
}

void TaskListener::hear(Guest& guest, double now, std::vector<Task>& came) {
  while (!guest.done && has_said_more(guest)) {
    if (guest.hello.empty())
      answer_hello(guest), guest.since = now;
    else if (!guest.is_proved)
      check_proof(guest);
    else if (guest.said.back() == '\n')
      enter(guest, came);
    else
      guest.done = guest.said.size() >= kLongestTaskLine;
  }
  guest.done = guest.done || now - guest.since > kGreetingMayTakeS;
}

// Never more than is expected: what follows the line is for another reader. Of the line, whose length is not known,
// the next byte.
bool TaskListener::has_said_more(Guest& guest) {
  const size_t wanted = guest.hello.empty() ? kHelloBytes : guest.is_proved ? guest.said.size() + 1 : kProofBytes;
  char bytes[kHelloBytes];
  const ssize_t n = read(guest.socket.get(), bytes, wanted - guest.said.size());
  guest.done = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
  if (n > 0) guest.said.append(bytes, static_cast<size_t>(n));
  return guest.said.size() == wanted;
}

// One of another run is told so, and one that speaks otherwise nothing.
void TaskListener::answer_hello(Guest& guest) {
  guest.hello = std::exchange(guest.said, "");
  const auto hello = read_hello(guest.secret, guest.hello);
  const bool is_ours = hello && hello->our_run;
  guest.done = !is_ours;
  if (!hello) return;
  guest.welcome = welcome_to(guest.secret, guest.hello, is_ours ? Verdict::welcome : Verdict::other_run);
  const ssize_t sent = send(guest.socket.get(), guest.welcome.data(), guest.welcome.size(), MSG_NOSIGNAL);
  guest.done = guest.done || sent != static_cast<ssize_t>(guest.welcome.size());
}

void TaskListener::check_proof(Guest& guest) {
  guest.is_proved = same_bytes(std::exchange(guest.said, ""), proof_of(guest.secret, guest.hello, guest.welcome));
  guest.done = !guest.is_proved;
}

void TaskListener::enter(Guest& guest, std::vector<Task>& came) {
  guest.done = true;
  std::istringstream words(guest.said);
  Task task;
  task.rank = static_cast<int>(read_hello(guest.secret, guest.hello)->rank);
  if (!(words >> task.size >> task.host)) return;
  task.socket = std::move(guest.socket);
  came.push_back(std::move(task));
}

}  // namespace drivetrain::program
