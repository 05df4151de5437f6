#include "state/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/durable.h>
#include <drivetrain/toolkit/host.h>

#include "base/piped.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUnfinished = ".unfinished-";

// Hidden, on the same file system, and nobody else's: ranks may be threads of one process, hosts share a folder.
std::string temporary_sibling(const std::string& path) {
  static std::atomic<unsigned> count{0};
  const std::string name = fs::path(path).filename().string();
  return concat(parent_folder(path), "/.", name, kUnfinished, host_name(), "-", ::getpid(), "-", count++);
}

// Whether the writer of such a file was a process of this host and is no more.
bool writer_ended(const std::string& name) {
  const std::string before = concat(kUnfinished, host_name(), "-");
  const size_t at = name.rfind(before);
  if (at == std::string::npos) return false;
  const long pid = std::strtol(name.c_str() + at + before.size(), nullptr, 10);
  return pid > 0 && ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// The file that a symbolic link points to, there or not; the path itself where it is none.
// Names of descriptors are links of the system's, to what may have no name any more: they stay.
std::string file_of_link(std::string path) {
  std::error_code error;
  for (int links = 0; descriptor_named(path) < 0 && fs::is_symlink(path, error) && links < 40; ++links) {
    const fs::path next = fs::read_symlink(path, error);
    path = next.is_absolute() ? next.string() : (fs::path(path).parent_path() / next).string();
  }
  return path;
}

// A device, terminal or pipe takes the bytes itself; a regular file in its place would be nobody's wish.
int open_through(const std::string& path, mode_t mode, uint64_t bytes) {
  if (!S_ISCHR(mode) && !S_ISFIFO(mode))
    throw fail(ErrorCode::io, path, ": is a ",
               S_ISDIR(mode)    ? "folder"
               : S_ISSOCK(mode) ? "socket"
                                : "block device",
               ", and a file is to be written there\n   choose another name");
  const int number = descriptor_named(file_of_link(path));
  const int descriptor = number >= 0 ? ::fcntl(number, F_DUPFD_CLOEXEC, 0)
                                     : ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0 && errno == ENXIO)
    throw fail(ErrorCode::io, path, ": is a pipe that nobody reads\n   start its reader first, or name a file");
  if (descriptor < 0) throw file_error(path, "open it for writing", errno, bytes);
  if (number < 0) ::fcntl(descriptor, F_SETFL, 0);  // it waits for its reader from here on
  return descriptor;
}

}  // namespace

NewFile::NewFile(const std::string& path, uint64_t bytes, Links links) : path_(path), bytes_(bytes) {
  struct stat found = {};
  const bool follow = links == Links::followed;
  const bool exists = (follow ? ::stat(path_.c_str(), &found) : ::lstat(path_.c_str(), &found)) == 0;
  if (!follow && (!exists || S_ISLNK(found.st_mode) || S_ISREG(found.st_mode))) {
    target_ = path_, temporary_ = temporary_sibling(target_);
    create();
  } else if (exists && !S_ISREG(found.st_mode)) {
    descriptor_ = open_through(path_, found.st_mode, bytes_);
  } else if (const int number = descriptor_named(file_of_link(path_)); number >= 0) {
    descriptor_ = ::fcntl(number, F_DUPFD_CLOEXEC, 0);  // `> FILE`, as the shell opened it: not to be replaced
    if (descriptor_ < 0) throw file_error(path_, "write through to the open file", errno, bytes_);
  } else {
    target_ = file_of_link(path_);
    temporary_ = temporary_sibling(target_);
    create();
  }
}

void NewFile::create() {
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw file_error(path_, "create the file", errno, bytes_);
  if (bytes_ == 0 || ::fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes_)) == 0) return;
  const int code = errno;
  if (code != ENOSPC && code != EDQUOT && code != EFBIG) return;  // cannot reserve here: writing will tell
  close_file();
  throw file_error(path_, "reserve the space", code, bytes_);
}

NewFile::~NewFile() { close_file(); }

void NewFile::close_file() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  descriptor_ = -1;
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void NewFile::write_at(uint64_t offset, const void* data, uint64_t bytes) {
  if (temporary_.empty() && offset != passed_)
    throw fail(ErrorCode::io, path_, ": is no regular file, and this content cannot be written in order\n   ",
               "name a file instead");
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const size_t most = std::min<uint64_t>(bytes, uint64_t{1} << 30);
    const ssize_t written = temporary_.empty() ? ::write(descriptor_, from, most)
                                               : ::pwrite(descriptor_, from, most, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw file_error(path_, "write", written < 0 ? errno : EIO, bytes_);
    from += written;
    offset += static_cast<uint64_t>(written);
    bytes -= static_cast<uint64_t>(written);
    passed_ = offset;
  }
}

void NewFile::commit() {
  if (temporary_.empty()) return close_file();
  if (::fsync(descriptor_) != 0) throw file_error(path_, "sync the file", errno, bytes_);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) throw file_error(path_, "rename the file", errno, bytes_);
  temporary_.clear();
  close_file();
  sync_folder(system_file_calls(), parent_folder(target_));
}

bool NewFile::commit_new() {
  if (temporary_.empty()) return false;
  if (::fsync(descriptor_) != 0) throw file_error(path_, "sync the file", errno, bytes_);
  // A link fails where the name is taken, on network file systems too.
  bool made = ::link(temporary_.c_str(), target_.c_str()) == 0;
  if (!made && errno != EEXIST && errno != ENOENT) {  // some file systems have no links
    made = ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE) == 0;
    if (made) temporary_.clear();
  }
  const int code = made ? 0 : errno;
  close_file();
  if (made) return sync_folder(system_file_calls(), parent_folder(target_)), true;
  // Without its temporary file: who won has removed it.
  if (code == EEXIST || code == ENOENT) return false;
  throw file_error(path_, "create the file", code, bytes_);
}

void remove_unfinished(const std::string& folder, bool all) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(".") || name.find(kUnfinished) == std::string::npos) continue;
    if (all || writer_ended(name)) fs::remove_all(entry.path(), ignored);
  }
}

bool NewFolder::is_free(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(without_slash(path), error);
  return status.type() == fs::file_type::not_found || (fs::is_directory(status) && fs::is_empty(path, error) && !error);
}

NewFolder::NewFolder(const std::string& path) : path_(without_slash(path)), temporary_(temporary_sibling(path_)) {
  std::error_code error;
  if (!is_free(path_))
    throw fail(ErrorCode::config, path_, ": is there already and not an empty folder\n   choose another folder");
  fs::create_directories(temporary_, error);
  if (error) throw file_error(path_, "create the folder", error.value(), 0);
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
}

void NewFolder::commit() {
  sync_folder(system_file_calls(), temporary_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw file_error(path_, "rename the folder", errno, 0);
  committed_ = true;
  sync_folder(system_file_calls(), parent_folder(path_));
}

}  // namespace drivetrain
