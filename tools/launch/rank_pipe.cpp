#include "launch/rank_pipe.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace drivetrain::program {

bool RankPipe::pass() {
  if (fd() < 0) return false;
  char buffer[1 << 16];
  ssize_t n = 0;
  do n = read(fd(), buffer, sizeof buffer);
  while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) return false;
  if (n <= 0) {
    end_line();
    from_.close();
    return false;
  }
  const std::string bytes(buffer, static_cast<size_t>(n));
  if (!said_error_) look_for_error(bytes);
  listener_(bytes);
  return true;
}

void RankPipe::look_for_error(const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    line_.append(bytes, at, std::min(end - at, std::strlen(kErrorBegins) - line_.size()));
    if (end < bytes.size()) end_line();
    at = end + 1;
  }
}

void RankPipe::end_line() {
  said_error_ = said_error_ || line_ == kErrorBegins;
  line_.clear();
}

}  // namespace drivetrain::program
