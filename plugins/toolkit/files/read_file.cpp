#include <drivetrain/toolkit/files/read_file.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include <drivetrain/toolkit/files/durable.h>

namespace drivetrain {
namespace {

struct Descriptor {
  const int number;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

}  // namespace

std::optional<std::string> read_file(const std::string& path, uint64_t most, ErrorCode wrong) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat status = {};
  if (file.number < 0 || ::fstat(file.number, &status) != 0) {
    const int code = errno;
    if (code == ENOENT || code == ENOTDIR) return std::nullopt;
    if (code == ELOOP || code == ENXIO) throw fail(wrong, path, ": is no regular file");
    throw file_error(path, "open it for reading", code);
  }
  if (!S_ISREG(status.st_mode)) throw fail(wrong, path, ": is no regular file");
  const auto bytes = static_cast<uint64_t>(status.st_size);
  if (bytes > most) throw fail(wrong, path, ": has ", bytes, " bytes; at most ", most, " are read");
  std::string text(bytes, '\0');
  for (size_t at = 0; at < text.size();) {
    const ssize_t found = ::pread(file.number, text.data() + at, text.size() - at, static_cast<off_t>(at));
    if (found < 0 && errno == EINTR) continue;
    if (found < 0) throw file_error(path, "read it", errno);
    if (found == 0)
      throw fail(ErrorCode::io, path, ": was cut short while it was read: it had ", bytes, " bytes and ends at byte ",
                 at, " now");
    at += static_cast<size_t>(found);
  }
  return text;
}

std::vector<std::string> names_in(const std::string& folder, InFolder what) {
  std::vector<std::string> names;
  std::error_code failed, unknown;
  for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
    if (at->is_directory(unknown) == (what == InFolder::folders)) names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace drivetrain
