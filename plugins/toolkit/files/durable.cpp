#include <drivetrain/toolkit/files/durable.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

bool is_full(int code) { return code == ENOSPC || code == EDQUOT; }

std::string free_space(const std::string& path) {
  struct statvfs info = {};
  for (std::string folder = parent_folder(path);; folder = parent_folder(folder)) {
    if (::statvfs(folder.c_str(), &info) == 0)
      return concat(uint64_t{info.f_bavail} * info.f_frsize, " bytes are free there");
    if (folder == parent_folder(folder)) return "";
  }
}

std::string hint_for(int code, bool writes) {
  if (is_full(code)) return "free some space or choose another folder";
  if (code == EFBIG)
    return "a file may not become that large: raise `ulimit -f`, or choose a file system that takes large files";
  if (code == EMFILE || code == ENFILE) return "too many files are open: raise `ulimit -n`";
  if (code == EROFS || ((code == EACCES || code == EPERM) && writes)) return "choose a folder that this user may write";
  if (code == EACCES || code == EPERM) return "let this user read it, or move it away";
  return "check the disk, the folder and its permissions";
}

bool is_aligned(const void* data, uint64_t offset, uint64_t bytes) {
  constexpr uint64_t kPage = 4096;
  return reinterpret_cast<uintptr_t>(data) % kPage == 0 && offset % kPage == 0 && bytes % kPage == 0;
}

// Removes what is in `path`, then `path` itself. A name that is gone meanwhile is no error.
void remove_any(FileCalls& calls, const fs::path& path, const fs::file_status& status) {
  const bool folder = fs::is_directory(status);
  if (folder) {
    std::error_code code;
    std::vector<fs::directory_entry> inside;
    for (fs::directory_iterator at(path, code), end; !code && at != end; at.increment(code)) inside.push_back(*at);
    if (code) throw file_error(path, "list the folder", code.value());
    for (const fs::directory_entry& entry : inside) remove_any(calls, entry.path(), entry.symlink_status(code));
  }
  if ((folder ? calls.remove_folder(path) : calls.remove_file(path)) != 0 && errno != ENOENT)
    throw file_error(path, folder ? "remove the folder" : "remove the file", errno);
}

}  // namespace

Error file_error(const std::string& path, const std::string& what, int code, uint64_t wanted) {
  std::string sizes = wanted ? concat(wanted, " bytes wanted") : "";
  if (is_full(code)) sizes += (sizes.empty() ? "" : "; ") + free_space(path);
  const bool reads = what == "look at it" || what == "open it for reading" || what == "read it";
  return fail(ErrorCode::io, path, ": cannot ", what, sizes.empty() ? "" : " (" + sizes + ")", ": ",
              std::strerror(code), "\n   ", hint_for(code, !reads));
}

std::string parent_folder(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

OutputFile::OutputFile(FileCalls& calls, const std::string& path, uint64_t bytes, Way way)
    : calls_(calls), path_(path), bytes_(bytes) {
  descriptor_ = calls_.open(path_, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor_ < 0) throw file_error(path_, "create the file", errno, bytes_);
  direct_ = way == Way::direct && calls_.set_direct(descriptor_, true) == 0;
  if (bytes_ == 0 || calls_.reserve(descriptor_, bytes_) == 0) return;
  const int code = errno;
  if (!is_full(code) && code != EFBIG) return;  // cannot reserve here: writing will tell
  calls_.close(descriptor_);
  throw file_error(path_, "reserve the space", code, bytes_);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) calls_.close(descriptor_);
}

void OutputFile::write_at(uint64_t offset, const void* data, uint64_t bytes) {
  const char* from = static_cast<const char*>(data);
  const uint64_t first = offset, all = bytes;
  while (bytes > 0) {
    const size_t most = std::min<uint64_t>(bytes, uint64_t{1} << 30);
    if (direct_ && !is_aligned(from, offset, most)) use_page_cache();
    const int64_t written = calls_.pwrite(descriptor_, from, most, offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EINVAL && direct_) {  // its blocks are longer, or it only seemed to be able to
      use_page_cache();
      continue;
    }
    if (written <= 0) throw file_error(path_, concat("write at byte ", offset), written < 0 ? errno : EIO, bytes_);
    from += written;
    offset += static_cast<uint64_t>(written);
    bytes -= static_cast<uint64_t>(written);
  }
  if (!direct_) calls_.start_writing(descriptor_, first, all);
}

void OutputFile::use_page_cache() {
  if (calls_.set_direct(descriptor_, false) != 0) throw file_error(path_, "write at its end", errno, bytes_);
  direct_ = false;
}

void OutputFile::finish() {
  if (calls_.fsync(descriptor_) != 0) throw file_error(path_, "sync the file", errno, bytes_);
  const int descriptor = descriptor_;
  descriptor_ = -1;  // closed even if close fails
  if (calls_.close(descriptor) != 0) throw file_error(path_, "close the file", errno, bytes_);
}

void write_durable_file(FileCalls& calls, const std::string& path, const std::string& text) {
  OutputFile file(calls, path, text.size());
  file.write_at(0, text.data(), text.size());
  file.finish();
}

void sync_folder(FileCalls& calls, const std::string& folder) {
  const int descriptor = calls.open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (descriptor < 0) throw file_error(folder, "open the folder to sync it", errno);
  const bool done = calls.fsync(descriptor) == 0;
  const int code = errno;
  calls.close(descriptor);
  // Some network file systems cannot sync a folder and say so.
  if (!done && code != EINVAL && code != ENOTSUP) throw file_error(folder, "sync the folder", code);
}

void make_folders(FileCalls& calls, const std::string& path) {
  struct stat found = {};
  if (::stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode)) return;
  if (const std::string parent = parent_folder(path); parent != path) make_folders(calls, parent);
  if (calls.make_folder(path, 0777) == 0) return;
  const int code = errno;  // another rank may have made it meanwhile
  if (code != EEXIST || ::stat(path.c_str(), &found) != 0 || !S_ISDIR(found.st_mode))
    throw file_error(path, "make the folder", code);
}

void remove_folder_tree(FileCalls& calls, const std::string& path) {
  std::error_code code;
  const fs::file_status status = fs::symlink_status(path, code);
  if (status.type() == fs::file_type::not_found) return;
  if (code) throw file_error(path, "look at it", code.value());
  remove_any(calls, path, status);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::error_code code;
  std::vector<std::string> names;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code))
    names.push_back(at->path().filename().string());
  if (code && code != std::errc::no_such_file_or_directory) throw file_error(folder, "list the folder", code.value());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace drivetrain
