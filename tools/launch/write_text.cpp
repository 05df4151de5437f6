#include "launch/write_text.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <set>

namespace drivetrain::program {
namespace {

constexpr int kLookMs = 250, kLooks = 8;
constexpr char kLost[] = "\ndrivetrain launch: nobody took the output, and some of it was lost here\n";

bool waits_no_more = false;
std::set<int> lossy;  // descriptors on which something was lost since they were last written to

bool is_asked_to_end() {
  sigset_t pending;
  sigemptyset(&pending);
  sigpending(&pending);
  return sigismember(&pending, SIGINT) || sigismember(&pending, SIGTERM) || sigismember(&pending, SIGHUP);
}

bool takes_more(int fd) {
  pollfd there = {fd, POLLOUT, 0};
  for (int looks = 0;;) {
    if (poll(&there, 1, waits_no_more ? 0 : kLookMs) > 0) return true;
    looks += is_asked_to_end() ? 1 : 0;
    if (looks >= kLooks) waits_no_more = true;
    if (waits_no_more) return false;
  }
}

// A pipe that takes anything takes so much, and the write does not wait.
size_t most_at_once(int fd) {
  struct stat status = {};
  return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) ? INT_MAX : PIPE_BUF;
}

void write_all(int fd, const std::string& text, size_t most) {
  for (size_t done = 0; done < text.size();) {
    if (!takes_more(fd)) {
      lossy.insert(fd);
      return;
    }
    const ssize_t n = write(fd, text.data() + done, std::min(most, text.size() - done));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return;
    done += static_cast<size_t>(n);
  }
}

}  // namespace

void write_text(int fd, const std::string& text) {
  if (fd < 0 || text.empty()) return;
  const size_t most = most_at_once(fd);
  if (lossy.contains(fd) && takes_more(fd)) {
    lossy.erase(fd);
    write_all(fd, kLost, most);
  }
  write_all(fd, text, most);
}

}  // namespace drivetrain::program
