#include "base/input_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/printable.h"

namespace drivetrain {
namespace {

using Clock = std::chrono::steady_clock;

const char* kind_name(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "no regular file";
}

Error wrong_kind(const std::string& path, mode_t mode, InputKind kind, const std::string& wanted) {
  return fail(ErrorCode::config, one_line(path), ": is ", kind_name(mode), "; ", wanted, " was wanted\n   name a file",
              kind == InputKind::file_or_pipe ? " or a pipe that a command writes to" : "");
}

Error cannot_open(const std::string& path, InputKind kind, const std::string& wanted, ErrorCode unreadable) {
  const int why = errno;
  struct stat facts;
  // A socket cannot be opened at all, which its error does not say.
  if (why == ENXIO && ::stat(path.c_str(), &facts) == 0) return wrong_kind(path, facts.st_mode, kind, wanted);
  const bool missing = why == ENOENT || why == ENOTDIR;
  return fail(missing ? ErrorCode::config : unreadable, one_line(path), ": cannot be opened: ", std::strerror(why),
              "\n   check the path", missing ? "" : " and its permissions");
}

// Waits until the pipe has something, or its last writer is gone. False after `deadline`.
bool wait_for_pipe(int descriptor, Clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wanted{descriptor, POLLIN, 0};
    const int ready = ::poll(&wanted, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) return true;  // reading says why
  }
}

}  // namespace

InputFile::InputFile(const std::string& path, InputKind kind, const std::string& wanted, ErrorCode unreadable)
    : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
  if (descriptor_ < 0) throw cannot_open(path, kind, wanted, unreadable);
  struct stat facts {};
  const bool known = ::fstat(descriptor_, &facts) == 0;
  is_pipe_ = known && S_ISFIFO(facts.st_mode);
  size_ = static_cast<uint64_t>(facts.st_size);
  if (known && (S_ISREG(facts.st_mode) || (is_pipe_ && kind == InputKind::file_or_pipe))) return;
  ::close(descriptor_);
  throw wrong_kind(path, facts.st_mode, kind, wanted);
}

InputFile::~InputFile() { ::close(descriptor_); }

std::string read_text(const std::string& path, InputKind kind, const std::string& wanted,
                      std::chrono::duration<double> pipe_time) {
  const InputFile file(path, kind, wanted);
  const auto too_large = [&] {
    return fail(ErrorCode::config, one_line(path), ": is larger than ", kLargestText >> 20, " MB; ", wanted,
                " was wanted\n   check the path");
  };
  if (file.size() > kLargestText) throw too_large();
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(pipe_time);
  std::string text;
  text.reserve(file.size());
  char buffer[64 << 10];
  while (true) {
    if (file.is_pipe() && !wait_for_pipe(file.descriptor(), deadline))
      throw fail(ErrorCode::config, one_line(path), ": the pipe gave ", text.size(), " bytes and no end within ",
                 pipe_time.count(), " s\n   check the command that writes to it, or name a file");
    const ssize_t n = ::read(file.descriptor(), buffer, sizeof buffer);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) throw fail(ErrorCode::config, one_line(path), ": cannot be read: ", std::strerror(errno));
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > kLargestText) throw too_large();
  }
}

}  // namespace drivetrain
