#include "launch/rank_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "launch/meeting.h"

namespace drivetrain::program {
namespace {

[[noreturn]] void cannot_be_made(const std::string& path, const std::string& why) {
  throw std::system_error(errno, std::generic_category(), "launch: the log " + path + " cannot be made" + why);
}

// Where another attempt of this launch ran the same rank on this host, its log goes on.
Descriptor opened_log(const std::string& path, bool may_be_there) {
  const int only_new = may_be_there ? 0 : O_EXCL;
  Descriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | only_new, 0600));
  if (file.get() < 0 && errno == EEXIST)
    cannot_be_made(
        path, " (it is there already: another launch began in the same second; start again, or name another folder)");
  if (file.get() < 0) cannot_be_made(path, "");
  struct stat status = {};
  fstat(file.get(), &status);
  errno = EPERM;
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid())
    cannot_be_made(path, " (what lies there is no file of this user)");
  fcntl(file.get(), F_SETFL, O_APPEND);
  return file;
}

}  // namespace

std::string log_begin_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  localtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y%m%d%H%M%S", &parts)};
}

void make_log_folder(const std::string& folder) {
  std::error_code failed;
  const bool is_there = std::filesystem::exists(folder, failed);
  if (is_there && !std::filesystem::is_directory(folder, failed))
    throw HostError(2, "--enable_each_rank_log wants a folder, and " + folder + " is none");
  const mode_t before = umask(077);
  if (!is_there) std::filesystem::create_directories(folder, failed);
  umask(before);
  if (failed) throw HostError(8, "the folder " + folder + " of the ranks' logs cannot be made: " + failed.message());
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    throw HostError(8, "the folder " + folder + " takes no logs of ranks: " + std::strerror(errno) +
                           "; give --enable_each_rank_log one that this user can write to");
}

std::string log_path(const RankSetup& setup, int rank) {
  return setup.log_folder + "/" + setup.log_begin + "_rank" + std::to_string(rank) + ".log";
}

RankLog::RankLog(const RankSetup& setup, int rank, Say say)
    : path_(log_path(setup, rank)), file_(opened_log(path_, setup.logs_may_be_there)), say_(std::move(say)) {}

void RankLog::write(const std::string& bytes) {
  for (size_t done = 0; done < bytes.size() && !failed_;) {
    const ssize_t n = ::write(fd(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      failed_ = true;
      return say_("the log " + path_ + " cannot be written any more: " + std::strerror(errno));
    }
    done += static_cast<size_t>(n);
  }
}

}  // namespace drivetrain::program
