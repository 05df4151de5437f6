#include "launch/brought_records.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>

#include "flight/memory.h"
#include "launch/rank_process.h"

namespace drivetrain::program {
namespace {

namespace fs = std::filesystem;
using Memory = FlightRecord::Memory;

std::string name_of_rank(int rank) {
  char name[32];
  std::snprintf(name, sizeof name, "rank_%04d", rank);
  return name;
}

// Null: they are no record of this rank.
std::unique_ptr<Memory> record_of(const std::string& bytes, int rank) {
  auto memory = std::make_unique<Memory>();
  if (bytes.size() != sizeof(Memory)) return nullptr;
  std::memcpy(static_cast<void*>(memory.get()), bytes.data(), sizeof(Memory));
  const bool is_one = std::memcmp(memory->magic, kFlightMagic, sizeof kFlightMagic) == 0 &&
                      memory->version == kFlightVersion && memory->rank == rank;
  return is_one ? std::move(memory) : nullptr;
}

// Of the record in a file; 0: it is none.
uint64_t run_in(const fs::path& file) {
  const Descriptor from(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  const auto memory = std::make_unique<Memory>();
  if (from.get() < 0 || pread(from.get(), memory.get(), sizeof(Memory), 0) != ssize_t{sizeof(Memory)}) return 0;
  return std::memcmp(memory->magic, kFlightMagic, sizeof kFlightMagic) == 0 ? memory->run.load() : 0;
}

}  // namespace

void BroughtRecords::take(int rank, const std::string& bytes) {
  const std::unique_ptr<Memory> record = record_of(bytes, rank);
  if (!record) return;
  const std::string folder(record->folder, strnlen(record->folder, sizeof record->folder - 1));
  if (record->run == 0 || folder.empty() || folder[0] != '/') {
    early_[rank] = bytes;
    return;
  }
  if (folder_.empty()) {
    run_ = record->run, folder_ = folder;
    open_folder();
  }
  if (record->run != run_ || (written_.count(rank) == 0 && is_here(rank))) return;
  write(name_of_rank(rank), bytes);
  if (!failed_) written_.insert(rank);
}

bool BroughtRecords::is_here(int rank) const {
  return run_in(fs::path(folder_) / "flight" / name_of_rank(rank)) == run_;
}

// What an earlier run has left there goes.
void BroughtRecords::open_folder() {
  const fs::path folder = fs::path(folder_) / "flight";
  std::error_code error;
  fs::create_directories(folder_, error);
  fs::create_directory(folder, error);
  failed_ = error || fs::is_symlink(folder, error);
  if (failed_)
    return say_("flight records cannot be written to " + folder.string() + ": " +
                (error ? error.message() : "it is a symbolic link, which is not followed"));
  for (auto at = fs::directory_iterator(folder, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename();
    const bool is_finished = name.starts_with("rank_") && !name.ends_with(".new");
    if (is_finished && run_in(at->path()) != run_) fs::remove(at->path(), error);
  }
}

void BroughtRecords::missing(int rank, const std::string& why) {
  if (folder_.empty() || written_.count(rank) != 0) return;
  if (const auto early = early_.find(rank); early != early_.end() && !is_here(rank)) {
    write(name_of_rank(rank), early->second);
    written_.insert(rank);
  } else if (!is_here(rank)) {
    write(name_of_rank(rank) + ".missing", why + "\n");
  }
}

void BroughtRecords::forget() {
  const fs::path folder = fs::path(folder_) / "flight";
  std::error_code ignored;
  for (const int rank : written_) fs::remove(folder / name_of_rank(rank), ignored);
  if (any()) fs::remove(folder, ignored);  // unless others keep something there
  written_.clear();
}

std::string BroughtRecords::ranks() const {
  std::string text;
  for (auto rank = written_.begin(); rank != written_.end(); ++rank)
    text += (rank == written_.begin()            ? ""
             : std::next(rank) == written_.end() ? " and "
                                                 : ", ") +
            std::to_string(*rank);
  return (written_.size() == 1 ? "rank " : "ranks ") + text;
}

// Under a name of its own first: nobody reads half a record, and no link of a stranger is followed.
void BroughtRecords::write(const std::string& name, const std::string& bytes) {
  if (failed_) return;
  const std::string path = (fs::path(folder_) / "flight" / name).string(), made = path + ".new";
  unlink(made.c_str());
  Descriptor to(open(made.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  const bool is_whole = to.get() >= 0 && ::write(to.get(), bytes.data(), bytes.size()) == ssize_t(bytes.size());
  to.close();
  if (is_whole && rename(made.c_str(), path.c_str()) == 0) return;
  failed_ = true;
  const int error = errno;
  unlink(made.c_str());
  say_("the flight record " + path + " cannot be written: " + std::strerror(error));
}

}  // namespace drivetrain::program
