#include "launch/config_document.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "drivetrain/command_line.h"
#include "launch/line_relay.h"

namespace drivetrain::program {
namespace {

constexpr size_t kLargest = 16 << 20;

// Of /dev/stdin, /dev/fd/63 and the like; -1 for any other path.
int descriptor_named(const std::string& path) {
  if (path == "/dev/stdin") return STDIN_FILENO;
  for (const std::string folder : {"/dev/fd/", "/proc/self/fd/"}) {
    int number = -1;
    const char* const end = path.data() + path.size();
    if (path.rfind(folder, 0) == 0 && std::from_chars(path.data() + folder.size(), end, number).ptr == end)
      return number;
  }
  return -1;
}

[[noreturn]] void refuse(const std::string& path, const std::string& problem) {
  throw UsageError("launch: the config " + path + " " + problem);
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

std::string read_all(const std::string& path, double quiet_s) {
  const Descriptor from(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (from.get() < 0) refuse(path, std::string("cannot be opened: ") + std::strerror(errno));
  std::string text;
  for (char buffer[1 << 16];;) {
    pollfd ready{from.get(), POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(quiet_s * 1000)) == 0)
      refuse(path, "is no regular file and gave " + std::string(text.empty() ? "nothing" : "no more") + " for " +
                       seconds_text(quiet_s) + "; is somebody writing to it?");
    const ssize_t n = read(from.get(), buffer, sizeof buffer);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) refuse(path, std::string("cannot be read: ") + std::strerror(errno));
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > kLargest) refuse(path, "has more than 16 MB; that is no config");
  }
}

}  // namespace

ConfigDocument read_config_once(const std::string& path, double quiet_s) {
  const int number = descriptor_named(path);
  struct stat status = {};
  const bool known = stat(path.c_str(), &status) == 0;
  if (number < 0 && (!known || S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))) return {Descriptor(), -1, path};
  if (number < 0 && (S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode)))
    refuse(path, "is a device; name a file or a pipe that a command writes to");
  const std::string text = read_all(path, quiet_s);
  Descriptor file(memfd_create("drivetrain-config", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  write_text(file.get(), text);
  if (file.get() < 0 || fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    refuse(path, std::string("cannot be kept for the ranks: ") + std::strerror(errno));
  ConfigDocument document{std::move(file), number, path};
  if (number >= 0) return document;
  document.number = document.file.get();
  document.path = "/dev/fd/" + std::to_string(document.number);
  return document;
}

}  // namespace drivetrain::program
