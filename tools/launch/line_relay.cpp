#include "launch/line_relay.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

namespace drivetrain::program {
namespace {
constexpr size_t kLastLines = 20;         // a stack trace and what led to it
constexpr size_t kLongestLine = 1 << 16;  // longer ones are cut, so that memory stays bounded
}  // namespace

void write_text(int fd, const std::string& text) {
  if (fd < 0) return;
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {  // somebody who shares it has made it non-blocking
      pollfd room{fd, POLLOUT, 0};
      poll(&room, 1, -1);
      continue;
    }
    if (n < 0) return;
    done += static_cast<size_t>(n);
  }
}

bool LineRelay::pass() {
  if (fd() < 0) return false;
  char buffer[1 << 16];
  ssize_t n = 0;
  do n = read(fd(), buffer, sizeof buffer);
  while (n < 0 && errno == EINTR);
  if (n > 0) {
    const std::string bytes(buffer, static_cast<size_t>(n));
    if (listener_) listener_(bytes);
    take(bytes);
    return true;
  }
  if (n < 0 && errno == EAGAIN) return false;
  finish();
  from_.close();
  return false;
}

void LineRelay::finish() {
  if (!line_.empty()) end_line();
  if (!errors_only_) put(ready_);
  ready_.clear();
}

void LineRelay::take(const std::string& bytes) {
  ready_.clear();
  for (const char c : bytes) {
    if (c != '\n') line_ += c;
    if (c == '\n' || line_.size() >= kLongestLine) end_line();
  }
  if (!errors_only_) put(prefix_.empty() ? bytes : ready_);
  ready_.clear();
}

void LineRelay::put(const std::string& text) {
  if (to_) to_->put(text);
}

void LineRelay::end_line() {
  const bool in_error = !error_.empty() || line_.starts_with("drivetrain: error: ");
  if (in_error && error_.size() < kLongestLine) error_ += line_ + "\n";
  if (!prefix_.empty() && (error_.empty() || error_passed_)) ready_ += prefix_ + line_ + "\n";
  last_lines_.push_back(std::move(line_));
  if (last_lines_.size() > kLastLines) last_lines_.pop_front();
  line_.clear();
}

void LineRelay::pass_error() {
  if ((prefix_.empty() && !errors_only_) || error_passed_) return;
  error_passed_ = true;
  std::string text;
  std::istringstream lines(error_);
  for (std::string line; std::getline(lines, line);) text += prefix_ + line + "\n";
  put(text);
}

}  // namespace drivetrain::program
