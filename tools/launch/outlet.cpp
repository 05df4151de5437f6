#include "launch/outlet.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "launch/report.h"

namespace drivetrain::program {
namespace {

constexpr size_t kMostKept = 1U << 20;  // then ranks wait with what they write
constexpr double kEndMayStandS = 2, kInsistMayStandS = 0.2;

bool lead_to_one(int a, int b) {
  struct stat of_a = {}, of_b = {};
  return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

}  // namespace

Outlet::Outlet(int fd) : fd_(fd) {
  struct stat status = {};
  fstat(fd, &status);
  if (S_ISSOCK(status.st_mode)) way_ = Way::socket;
  if (!S_ISFIFO(status.st_mode) && !isatty(fd)) return;
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  own_ = Descriptor(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  way_ = own_.get() >= 0 ? Way::reopened : Way::asked;
}

pollfd Outlet::room() const { return {is_empty() ? -1 : way_ == Way::reopened ? own_.get() : fd_, POLLOUT, 0}; }

ssize_t Outlet::write_some(const char* bytes, size_t size) const {
  if (way_ == Way::socket) return send(fd_, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (way_ == Way::reopened) return write(own_.get(), bytes, size);
  if (way_ == Way::plain || has_room())
    return write(fd_, bytes, way_ == Way::asked ? std::min<size_t>(size, PIPE_BUF) : size);
  errno = EAGAIN;
  return -1;
}

bool Outlet::has_room() const {
  pollfd room{way_ == Way::reopened ? own_.get() : fd_, POLLOUT, 0};
  return poll(&room, 1, 0) > 0;
}

void Outlet::put(const std::string& text) {
  if (fd_ < 0 || text.empty()) return;
  if (drops_ && !has_room()) return;
  drops_ = false;
  if (is_empty()) moved_at_ = Clock::now();
  waiting_ += text;
  flush();
}

void Outlet::flush() {
  while (!is_empty()) {
    const ssize_t n = write_some(waiting_.data() + done_, size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) {  // a reader that is gone is nobody's error
      if (errno != EPIPE && errno != ECONNRESET && !failed_)
        failed_ = true, problem_ = std::string("cannot be written: ") + std::strerror(errno) + "; output is lost";
      done_ = waiting_.size();
      break;
    }
    done_ += static_cast<size_t>(n);
    moved_at_ = Clock::now();
  }
  if (is_empty()) waiting_.clear(), done_ = 0;
  if (done_ > kMostKept) waiting_.erase(0, done_), done_ = 0;
  look_for_standstill();
}

void Outlet::look_for_standstill() {
  if (is_empty() || may_stand_s_ < 0 || std::chrono::duration<double>(Clock::now() - moved_at_).count() < may_stand_s_)
    return;
  drops_ = true;
  waiting_.clear(), done_ = 0;
  problem_ = "is not read: what ranks wrote and it did not take is dropped, so that the run can end";
}

void Outlet::drop_after(double seconds) {
  if (may_stand_s_ < 0) moved_at_ = Clock::now();
  may_stand_s_ = seconds;
}

void Outlet::keep_all() { may_stand_s_ = -1, drops_ = false; }

std::string Outlet::problem() { return std::exchange(problem_, ""); }

Outlets::Outlets(int out_fd, int err_fd)
    : out(out_fd),
      own_err_(lead_to_one(out_fd, err_fd) ? nullptr : std::make_unique<Outlet>(err_fd)),
      err(own_err_ ? *own_err_ : out) {}

bool Outlets::take_more() const { return std::max(out.size(), err.size()) < kMostKept; }

void Outlets::turn() {
  out.flush();
  if (const std::string problem = out.problem(); !problem.empty()) launcher_says(err, "stdout " + problem);
  err.flush();
}

void Outlets::begin() {
  out.keep_all(), err.keep_all();
  ends_ = false;
}

void Outlets::end() {
  if (ends_) return;
  ends_ = true;
  out.drop_after(kEndMayStandS), err.drop_after(kEndMayStandS);
}

void Outlets::insist() {
  end();
  out.drop_after(kInsistMayStandS), err.drop_after(kInsistMayStandS);
}

void Outlets::wait(const SignalWatch& signals, int most_ms) const {
  std::vector<pollfd> fds = rooms();
  fds.push_back({signals.fd(), POLLIN, 0});
  poll(fds.data(), fds.size(), most_ms);
}

int Outlets::pause(double seconds, SignalWatch& signals) {
  using namespace std::chrono;
  begin();
  const auto end_at = steady_clock::now() + duration_cast<steady_clock::duration>(duration<double>(seconds));
  for (;;) {
    turn();
    while (const int number = signals.next())
      if (number != SIGUSR2) return end(), number;
    const auto left_ms = ceil<milliseconds>(end_at - steady_clock::now()).count();
    if (left_ms <= 0) return 0;
    wait(signals, static_cast<int>(std::min<int64_t>(left_ms, 1000)));
  }
}

void Outlets::finish(SignalWatch& signals) {
  for (turn(); !out.is_empty() || !err.is_empty(); turn()) {
    wait(signals, 100);
    while (const int number = signals.next())
      if (number != SIGUSR2) ends_ ? insist() : end();
  }
}

}  // namespace drivetrain::program
