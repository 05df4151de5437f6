#include "launch/restart_point.h"

#include <unistd.h>

#include <cerrno>

namespace drivetrain::program {

// Each point is "TAG FOLDER" and a zero byte, where a tag has no blanks; the last word is "done" and a zero byte.
bool RestartPoints::take() {
  if (fd() < 0) return false;
  char buffer[4096];
  ssize_t n = 0;
  do n = read(fd(), buffer, sizeof buffer);
  while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) return false;
  if (n <= 0) {
    from_.close();
    return false;
  }
  const std::string bytes(buffer, static_cast<size_t>(n));
  if (listener_) listener_(bytes);
  take(bytes);
  return true;
}

void RestartPoints::take(const std::string& bytes) {
  unfinished_ += bytes;
  for (size_t end; (end = unfinished_.find('\0')) != std::string::npos; unfinished_.erase(0, end + 1)) {
    const size_t blank = unfinished_.find(' ');
    if (blank >= end) {
      done_ = done_ || unfinished_.substr(0, end) == "done";
      continue;
    }
    newest_ = {unfinished_.substr(0, blank), unfinished_.substr(blank + 1, end - blank - 1)};
    ++count_;
  }
}

}  // namespace drivetrain::program
