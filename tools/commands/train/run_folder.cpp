#include "train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
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
    if (fs::exists(fs::symlink_status(fs::path(path) / file, unknown))) return file;
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

HeldFolder::HeldFolder(const std::string& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {}

HeldFolder::~HeldFolder() {
  guard_.let_go();
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool HeldFolder::is_in_place() const {
  struct stat held = {}, found = {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &held) != 0) return true;
  if (::stat(path_.c_str(), &found) != 0) return errno != ENOENT && errno != ENOTDIR;
  return held.st_dev == found.st_dev && held.st_ino == found.st_ino;
}

std::string HeldFolder::whereabouts() const {
  std::error_code unknown;
  const std::string path = fs::read_symlink("/proc/self/fd/" + std::to_string(descriptor_), unknown).string();
  struct stat held = {}, found = {};
  if (unknown || ::fstat(descriptor_, &held) != 0 || ::stat(path.c_str(), &found) != 0) return {};
  return held.st_dev == found.st_dev && held.st_ino == found.st_ino ? path : "";
}

void HeldFolder::check() const {
  if (is_in_place()) return;
  const std::string now = whereabouts();
  throw fail(
      ErrorCode::io, "output_dir ", path_, ": was ", now.empty() ? "removed" : "moved to " + now,
      " while this run was at work in it\n   what has that name now is not this run's, and nothing is saved there",
      now.empty() ? "" : "; its checkpoints are in " + now, "\n   leave the folder of a run in its place");
}

// A file system that has no such locks does not keep a run from working.
FolderLock::FolderLock(const std::string& path) : folder_(path) {
  if (folder_.descriptor() < 0)
    throw fail(ErrorCode::io, "cannot open output_dir ", path, ": ", std::strerror(errno),
               "\n   check its permissions, or choose another with --set output_dir=FOLDER");
  if (::flock(folder_.descriptor(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  throw fail(ErrorCode::config, "output_dir ", path,
             " holds a run already, and another process is at work in it\n   wait for its end, stop it, or choose ",
             "another with --set output_dir=FOLDER");
}

std::unique_ptr<FolderLock> take_run_folder(const std::string& path, const std::string& resolved_json) {
  check_run_folder(path);  // a folder with metrics alone is a run as well
  std::error_code error;
  fs::create_directories(path, error);
  if (error || !fs::is_directory(path))
    throw fail(ErrorCode::io, "cannot create output_dir ", path, ": ", error ? error.message() : "a file has that name",
               ". Choose another with --set output_dir=FOLDER");
  auto lock = std::make_unique<FolderLock>(path);
  NewFile first(path + "/" + kFirstFile, resolved_json.size(), NewFile::Links::replaced);
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

void write_run_file(const std::string& path, const std::string& text) {
  NewFile file(path, text.size(), NewFile::Links::replaced);
  file.write_at(0, text.data(), text.size());
  file.commit();
}

}  // namespace drivetrain
