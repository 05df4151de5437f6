#include <drivetrain/toolkit/files/own_file.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>

namespace drivetrain {
namespace {

constexpr int kMostLinks = 8;

// Where the link points to; empty, with errno, if another user made it. Both are asked of one open link: what has its
// name may change in between.
std::string target_of_own_link(const std::string& path) {
  const int link = ::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (link < 0) return {};
  struct stat found = {};
  char target[PATH_MAX];
  const bool own = ::fstat(link, &found) == 0 && S_ISLNK(found.st_mode) && found.st_uid == ::geteuid();
  const ssize_t length = own ? ::readlinkat(link, "", target, sizeof target) : -1;
  ::close(link);
  if (length <= 0 || length == static_cast<ssize_t>(sizeof target)) return errno = ELOOP, std::string();
  const std::filesystem::path to(std::string(target, static_cast<size_t>(length)));
  return to.is_absolute() ? to.string() : (std::filesystem::path(path).parent_path() / to).string();
}

}  // namespace

int open_to_append(const std::string& path, int flags) {
  std::string at = path;
  for (int links = 0; links < kMostLinks; ++links) {
    const int file = ::open(at.c_str(), flags | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (file >= 0 || errno != ELOOP) return file;
    at = target_of_own_link(at);
    if (at.empty()) return -1;
  }
  return errno = ELOOP, -1;
}

std::string foreign_link(const std::string& path) {
  std::string at = path;
  for (int links = 0; links < kMostLinks; ++links) {
    struct stat found = {};
    if (::lstat(at.c_str(), &found) != 0 || !S_ISLNK(found.st_mode)) break;
    if (found.st_uid != ::geteuid())
      return (at == path ? "it is" : "it leads to " + at + ",") + " a symbolic link of user " +
             std::to_string(found.st_uid) +
             ", which is not followed\n   remove it, or choose another folder with --set output_dir=FOLDER";
    at = target_of_own_link(at);
  }
  return {};
}

std::string append_problem(const std::string& path, int code) {
  const std::string link = code == ELOOP ? foreign_link(path) : "";
  return link.empty() ? std::strerror(code) : link;
}

}  // namespace drivetrain
