#include "launch/config_document.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/piped.h"
#include "cli/usage_error.h"
#include "launch/outcome.h"
#include "launch/write_text.h"

namespace drivetrain::program {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void refuse(const std::string& what, const std::string& problem) {
  throw UsageError("launch: " + what + " " + problem);
}

// Milliseconds until then, at least 0.
int left_until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::max<int64_t>(left, 0));
}

std::string read_all(const std::string& path, const std::string& what, double within_s) {
  const Descriptor from(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (from.get() < 0) refuse(what, std::string("cannot be opened: ") + std::strerror(errno));
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(within_s));
  std::string text;
  for (char buffer[1 << 16];;) {
    pollfd ready{from.get(), POLLIN, 0};
    if (poll(&ready, 1, left_until(deadline)) == 0)
      refuse(what, "is no regular file and gave " + std::to_string(text.size()) + " bytes and no end within " +
                       seconds_text(within_s) + "; is somebody writing to it?");
    const ssize_t n = read(from.get(), buffer, sizeof buffer);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) refuse(what, std::string("cannot be read: ") + std::strerror(errno));
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > kLargestText)
      refuse(what, "has more than " + std::to_string(kLargestText >> 20) + " MB, the most that is read");
  }
}

Descriptor sealed_file(const std::string& text, const std::string& path) {
  Descriptor file(memfd_create("drivetrain-config", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  write_text(file.get(), text);
  if (file.get() < 0 || fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    refuse("the config " + path, std::string("cannot be kept for the ranks: ") + std::strerror(errno));
  return file;
}

// Below what `ulimit -n` leaves any rank, above what a launcher opens for rank 0.
constexpr int kCommonNumber = 47;

}  // namespace

ConfigDocument read_config_once(const std::string& path) {
  return read_config_once(path, static_cast<double>(kPipeTime.count()));
}

ConfigDocument read_config_once(const std::string& path, double within_s) {
  const int number = descriptor_named(path);
  struct stat status = {};
  const bool known = stat(path.c_str(), &status) == 0;
  if (number < 0 && (!known || S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))) return {Descriptor(), -1, path};
  if (number < 0 && (S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode)))
    refuse("the config " + path, "is a device; name a file or a pipe that a command writes to");
  ConfigDocument document{sealed_file(read_all(path, "the config " + path, within_s), path), number, path};
  if (number >= 0) return document;
  document.number = document.file.get();
  document.path = "/dev/fd/" + std::to_string(document.number);
  return document;
}

std::string read_pipe(const std::string& path, const std::string& what, double within_s) {
  return read_all(path, what, within_s);
}

ConfigDocument config_of_text(const std::string& text, int number) {
  return {sealed_file(text, "of the launcher"), number, "/dev/fd/" + std::to_string(number)};
}

std::string text_of(const ConfigDocument& document) { return content_of(document.file); }

void move_to_common_number(ConfigDocument& document) {
  if (document.number <= STDERR_FILENO) return;
  document.number = kCommonNumber;
  document.path = "/dev/fd/" + std::to_string(kCommonNumber);
}

}  // namespace drivetrain::program
