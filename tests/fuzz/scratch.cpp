#include "scratch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace drivetrain::fuzz {
namespace {

namespace fs = std::filesystem;

// Gone when the process ends well; after a crash it stays, with the input in it.
struct Folder {
  Folder() {
    const bool in_memory = ::access("/dev/shm", W_OK) == 0;
    path = ((in_memory ? fs::path("/dev/shm") : fs::temp_directory_path()) / "drivetrain-fuzz-XXXXXX").string();
    if (!::mkdtemp(path.data())) std::perror("mkdtemp"), std::abort();
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  std::string path;
};

}  // namespace

std::string scratch_path(const std::string& name) {
  static const Folder folder;
  const fs::path path = fs::path(folder.path) / name;
  fs::create_directories(path.parent_path());
  return path.string();
}

// A new file each time: readers may keep the one before open.
std::string scratch_file(const std::string& name, const std::string& bytes) {
  const std::string path = scratch_path(name);
  ::unlink(path.c_str());
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool whole = file >= 0 && ::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  if (!whole) std::perror(path.c_str()), std::abort();
  ::close(file);
  return path;
}

std::string source_path(const std::string& path) { return DRIVETRAIN_SOURCE_DIR "/" + path; }

std::string source_file(const std::string& path) {
  std::ifstream in(source_path(path), std::ios::binary);
  if (!in) std::perror(source_path(path).c_str()), std::abort();
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace drivetrain::fuzz
