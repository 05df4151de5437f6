#include "app/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <drivetrain/error.h>

#include "state/new_file.h"

namespace drivetrain {
namespace fs = std::filesystem;

namespace {

constexpr const char* kFirstFile = "resolved.json";

Error holds_a_run(const std::string& path, const std::string& file) {
  return fail(ErrorCode::config, "output_dir ", path, " holds a run already (", file, "); runs are never overwritten. ",
              "Choose another with --set output_dir=FOLDER, or move it away");
}

// The file that shows it; null: none.
const char* sign_of_run(const std::string& path) {
  std::error_code unknown;  // a path that cannot be is told when the folder is created
  for (const char* file : {kFirstFile, "metrics.jsonl"})
    if (fs::exists(fs::path(path) / file, unknown)) return file;
  return nullptr;
}

}  // namespace

bool holds_run(const std::string& path) { return sign_of_run(path) != nullptr; }

void check_run_folder(const std::string& path) {
  const char* file = sign_of_run(path);
  if (!file) return;
  remove_unfinished(path, false);  // of that run, if it was killed while it wrote
  throw holds_a_run(path, file);
}

// A file system that has no such locks does not keep a run from working.
FolderLock::FolderLock(const std::string& path) {
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0)
    throw fail(ErrorCode::io, "cannot open output_dir ", path, ": ", std::strerror(errno),
               "\n   check its permissions, or choose another with --set output_dir=FOLDER");
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(descriptor_);
  throw fail(ErrorCode::config, "output_dir ", path,
             " holds a run already, and another process is at work in it\n   wait for its end, stop it, or choose ",
             "another with --set output_dir=FOLDER");
}

FolderLock::~FolderLock() { ::close(descriptor_); }

std::unique_ptr<FolderLock> take_run_folder(const std::string& path, const std::string& resolved_json) {
  check_run_folder(path);  // a folder with metrics alone is a run as well
  std::error_code error;
  fs::create_directories(path, error);
  if (error || !fs::is_directory(path))
    throw fail(ErrorCode::io, "cannot create output_dir ", path, ": ", error ? error.message() : "a file has that name",
               ". Choose another with --set output_dir=FOLDER");
  auto lock = std::make_unique<FolderLock>(path);
  NewFile first(path + "/" + kFirstFile, resolved_json.size());
  first.write_at(0, resolved_json.data(), resolved_json.size());
  if (!first.commit_new()) throw holds_a_run(path, concat(kFirstFile, ", of a run that started at the same time"));
  remove_unfinished(path, true);
  return lock;
}

void write_text_file(const std::string& path, const std::string& text) {
  NewFile file(path, text.size());
  file.write_at(0, text.data(), text.size());
  file.commit();
}

}  // namespace drivetrain
