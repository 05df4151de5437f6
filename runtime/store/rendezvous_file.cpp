#include "store/rendezvous_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <sstream>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/proc_text.h>

namespace drivetrain {
namespace {

constexpr const char* kInstead =
    "Or set, for all ranks, XDG_RUNTIME_DIR to a folder that is yours alone, or MASTER_ADDR, MASTER_PORT and "
    "DRIVETRAIN_RUN_TOKEN, a secret (openssl rand -hex 32)";
constexpr size_t kMostOfAFile = 1024;

class OpenFile {
 public:
  explicit OpenFile(int fd) : fd_(fd) {}
  OpenFile(const OpenFile&) = delete;
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  const int fd_;
};

std::string file_of_process(int64_t pid, const char* name) { return proc_text(concat("/proc/", pid, "/", name)); }

struct ProcessPlace {
  int64_t parent = 0;
  std::string start;  // with the pid: unique since boot
};

// Behind the command's name, which may hold anything: state, parent, ..., start time as field 22.
ProcessPlace place_of_process(int64_t pid) {
  const std::string stat = file_of_process(pid, "stat");
  const size_t name_end = stat.rfind(')');
  ProcessPlace place;
  if (name_end == std::string::npos) return place;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string field;
  for (int number = 3; fields >> field; ++number) {
    if (number == 4) place.parent = std::stoll(field);
    if (number == 22) place.start = field;
  }
  return place;
}

// "<launcher>.<its start>"
std::string launcher_of(const std::string& rank_variable) {
  int64_t pid = getppid();
  const std::string wanted = concat('\0', rank_variable, "=");
  while (pid > 1 && ('\0' + file_of_process(pid, "environ")).find(wanted) != std::string::npos)
    pid = place_of_process(pid).parent;
  return concat(pid, ".", place_of_process(pid).start);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Why this is not ours alone; empty: it is.
std::string not_private(const struct stat& facts) {
  if (facts.st_uid != geteuid()) return concat("belongs to user ", facts.st_uid, ", not to ", geteuid());
  if ((facts.st_mode & 077) != 0) return "can be used by others";
  return "";
}

std::vector<std::string> folders_of_host() {
  std::vector<std::string> folders;
  const std::string runtime = variable("XDG_RUNTIME_DIR");
  struct stat facts {};
  if (runtime.starts_with('/') && lstat(runtime.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) &&
      not_private(facts).empty())
    folders.push_back(runtime + "/drivetrain");
  folders.push_back(concat("/tmp/drivetrain-", geteuid()));
  folders.push_back(concat("/run/user/", geteuid(), "/drivetrain"));  // of a rank 0 that was told XDG_RUNTIME_DIR
  return folders;
}

Error rendezvous_failed(const std::string& path, const std::string& why) {
  return fail(ErrorCode::communication, "the ranks cannot meet in ", path, ": it ", why, ". ", kInstead);
}

// Of a folder that is this user's alone; -1: there is none.
int open_folder(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return -1;
  if (fd < 0) {
    const bool other = errno == ELOOP || errno == ENOTDIR;
    const std::string cause = other ? "is no folder" : concat("cannot be opened: ", std::strerror(errno));
    struct stat facts {};
    const bool foreign = lstat(path.c_str(), &facts) == 0 && facts.st_uid != geteuid();
    throw rendezvous_failed(path, foreign ? not_private(facts) + "; have it removed" : cause + "; remove it");
  }
  struct stat facts {};
  std::string why = fstat(fd, &facts) == 0 ? not_private(facts) : std::strerror(errno);
  if (why.empty()) return fd;
  why += facts.st_uid == geteuid() ? "; chmod 700 it" : "; have it removed";
  ::close(fd);
  throw rendezvous_failed(path, why);
}

int open_if_private(const std::string& path) {
  try {
    return open_folder(path);
  } catch (const Error&) {
    return -1;
  }
}

std::string first_bytes(int fd) {
  std::string text(kMostOfAFile, '\0');
  const ssize_t n = ::read(fd, text.data(), text.size());
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

// What runs that were killed left behind. A file is read while ranks come together, which takes no day.
void remove_leftovers(const std::string& folder) {
  const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(24);
  std::error_code failed;
  for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    std::error_code gone;  // by its own run, meanwhile
    const auto written = std::filesystem::last_write_time(at->path(), gone);
    if (!gone && written < long_ago) std::filesystem::remove(at->path(), gone);
  }
}

}  // namespace

RendezvousFile RendezvousFile::of_launcher(const std::string& rank_variable) {
  return {folders_of_host(), launcher_of(rank_variable)};
}

RendezvousFile RendezvousFile::of_address(const std::string& host, int64_t port, bool one_host) {
  std::string file = concat("at-", host, "-", port);
  for (char& c : file)
    if (!isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
  if (one_host) return {folders_of_host(), file};
  const std::string home = variable("HOME");
  if (!home.starts_with('/'))
    throw fail(ErrorCode::communication, "HOME is not set, where ranks of several hosts meet. ", kInstead);
  return {{home + "/.cache/drivetrain/meeting"}, file};
}

RendezvousFile::RendezvousFile(RendezvousFile&& other) noexcept
    : folders_(other.folders_), file_(other.file_), written_(std::move(other.written_)) {
  other.written_.clear();
}

std::string RendezvousFile::text() const { return concat("the file ", file_, " in ", folders_.front()); }

void RendezvousFile::write(const Contents& what) {
  const std::string& folder = folders_.front();
  std::error_code failed;
  std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), failed);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw rendezvous_failed(folder, concat("cannot be made: ", std::strerror(errno)));
  const OpenFile place(open_folder(folder));
  remove_leftovers(folder);
  const std::string text = concat(what.port, " ", what.secret, "\n"), unfinished = concat(file_, ".", getpid(), ".tmp");
  unlinkat(place.get(), unfinished.c_str(), 0);
  const OpenFile file(
      openat(place.get(), unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.get() < 0 || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      renameat(place.get(), unfinished.c_str(), place.get(), file_.c_str()) != 0) {
    const std::string cause = std::strerror(errno);
    unlinkat(place.get(), unfinished.c_str(), 0);
    throw rendezvous_failed(folder, concat("takes no file: ", cause));
  }
  const std::lock_guard lock(mutex_);
  written_ = folder + "/" + file_;
}

std::optional<RendezvousFile::Contents> RendezvousFile::read() const {
  for (const std::string& folder : folders_) {
    const OpenFile place(folder == folders_.front() ? open_folder(folder) : open_if_private(folder));
    if (place.get() < 0) continue;
    const OpenFile file(openat(place.get(), file_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat facts {};
    if (file.get() < 0 || fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) continue;
    if (const std::string why = not_private(facts); !why.empty())
      throw rendezvous_failed(folder + "/" + file_, why + "; remove it");
    Contents shown;
    std::istringstream(first_bytes(file.get())) >> shown.port >> shown.secret;
    if (shown.port > 0 && !shown.secret.empty()) return shown;
  }
  return std::nullopt;
}

void RendezvousFile::close() {
  const std::lock_guard lock(mutex_);
  if (!written_.empty()) unlink(written_.c_str());
  written_.clear();
}

}  // namespace drivetrain
