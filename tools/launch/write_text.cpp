#include "launch/write_text.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace drivetrain::program {

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

}  // namespace drivetrain::program
