#include "state/new_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// Hidden, on the same file system, and nobody else's: ranks may be threads of one process.
std::string temporary_sibling(const std::string& path) {
  static std::atomic<unsigned> count{0};
  const std::string name = fs::path(path).filename().string();
  return concat(parent_of(path), "/.", name, ".unfinished-", ::getpid(), "-", count++);
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

Error write_error(const std::string& path, const std::string& what, int code, uint64_t wanted) {
  std::string space, hint = "check the folder and its permissions";
  if (code == ENOSPC || code == EDQUOT || code == EFBIG) {
    struct statvfs info;
    if (::statvfs(parent_of(path).c_str(), &info) == 0) {
      space = concat("; ", uint64_t{info.f_bavail} * info.f_frsize, " bytes are free there");
    }
    hint = "free some space or choose another output folder";
  }
  return fail(ErrorCode::io, path, ": cannot ", what, " (", wanted, " bytes wanted", space, "): ", std::strerror(code),
              "\n   ", hint);
}

// A rename is safe only when the folder that holds the name is on disk as well.
void sync_folder(const std::string& folder, const std::string& path) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool done = descriptor >= 0 && ::fsync(descriptor) == 0;
  const int code = errno;
  if (descriptor >= 0) ::close(descriptor);
  // Some network file systems cannot sync a folder and say so.
  if (!done && code != EINVAL && code != ENOTSUP) throw write_error(path, "sync its folder", code, 0);
}

}  // namespace

NewFile::NewFile(const std::string& path, uint64_t bytes)
    : path_(path), temporary_(temporary_sibling(path)), bytes_(bytes) {
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw write_error(path_, "create the file", errno, bytes_);
  if (bytes_ == 0 || ::fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes_)) == 0) return;
  const int code = errno;
  if (code != ENOSPC && code != EDQUOT && code != EFBIG) return;  // cannot reserve here: writing will tell
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
  throw write_error(path_, "reserve the space", code, bytes_);
}

NewFile::~NewFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void NewFile::write_at(uint64_t offset, const void* data, uint64_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written =
        ::pwrite(descriptor_, from, std::min<uint64_t>(bytes, uint64_t{1} << 30), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw write_error(path_, "write", written < 0 ? errno : EIO, bytes_);
    from += written;
    offset += static_cast<uint64_t>(written);
    bytes -= static_cast<uint64_t>(written);
  }
}

void NewFile::commit() {
  if (::fsync(descriptor_) != 0) throw write_error(path_, "sync the file", errno, bytes_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw write_error(path_, "rename the file", errno, bytes_);
  ::close(descriptor_);
  descriptor_ = -1;
  sync_folder(parent_of(path_), path_);
}

NewFolder::NewFolder(const std::string& path) : path_(without_slash(path)), temporary_(temporary_sibling(path_)) {
  std::error_code error;
  if (fs::exists(path_, error) && !(fs::is_directory(path_, error) && fs::is_empty(path_, error))) {
    throw fail(ErrorCode::config, path_, ": is there already and not an empty folder\n   choose another folder");
  }
  fs::create_directories(temporary_, error);
  if (error) throw write_error(path_, "create the folder", error.value(), 0);
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
}

void NewFolder::commit() {
  sync_folder(temporary_, path_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw write_error(path_, "rename the folder", errno, 0);
  committed_ = true;
  sync_folder(parent_of(path_), path_);
}

}  // namespace drivetrain
