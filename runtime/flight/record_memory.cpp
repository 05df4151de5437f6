// Where the bytes of a flight record are: in memory that outlives the process, and in a file.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>

#include <drivetrain/error.h>

#include "flight/memory.h"

namespace drivetrain {
namespace {

using Memory = FlightRecord::Memory;

void* map(int fd) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* const at = mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, flags, fd, 0);
  return at == MAP_FAILED ? nullptr : at;
}

}  // namespace

FlightRecord::FlightRecord(int64_t rank, int64_t world_size, int held) : rank_(rank), world_size_(world_size) {
  void* const at = map(held);
  if (!at)
    throw fail(ErrorCode::out_of_memory, "the flight record of rank ", rank, " has no memory: wanted ", sizeof(Memory),
               " bytes\n   leave room under `ulimit -v`, or set \"flight_record\": false");
  auto* const memory = new (at) Memory;
  memory->rank = rank, memory->world_size = world_size, memory->pid = getpid();
  memory->start_ns = flight_clock_ns();
  memory->start_unix_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  gethostname(memory->host, sizeof memory->host - 1);
  mapped_.push_back(memory);
  memory_ = memory;
}

FlightRecord::~FlightRecord() {
  for (Memory* memory : mapped_) munmap(memory, sizeof(Memory));
}

void FlightRecord::belongs_to(uint64_t run, const std::string& output_dir) noexcept {
  Memory& memory = *memory_;
  if (output_dir.size() < sizeof memory.folder) copy_text(memory.folder, sizeof memory.folder, output_dir);
  memory.run = run;
}

// A name of its own first: a record of a run before is never half overwritten, and no link of a stranger is followed.
void FlightRecord::keep_in(const std::string& path) {
  const std::string made = path + ".new";
  const auto failed = [&](const char* what, int error) {
    ::unlink(made.c_str());
    return fail(ErrorCode::io, "the flight record ", path, " cannot be ", what, ": ", std::strerror(error));
  };
  if (::unlink(made.c_str()) != 0 && errno != ENOENT) throw failed("created", errno);
  const int fd = ::open(made.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) throw failed("created", errno);
  // Its blocks are there from now on: a full disk is met here and not as a signal while a collective is written.
  int error = posix_fallocate(fd, 0, sizeof(Memory));
  void* const at = error == 0 ? map(fd) : nullptr;
  if (error == 0) error = errno;  // of `map`
  ::close(fd);
  if (!at) throw failed("written", error);
  if (::rename(made.c_str(), path.c_str()) != 0) {
    error = errno;
    munmap(at, sizeof(Memory));
    throw failed("written", error);
  }
  const std::lock_guard lock(groups_);
  Memory& before = *memory_;
  std::memcpy(at, static_cast<const void*>(&before), sizeof(Memory));
  mapped_.push_back(static_cast<Memory*>(at));
  memory_ = static_cast<Memory*>(at);
  before.in_file = 1;
  path_ = path;
}

void FlightRecord::flush() noexcept { msync(memory_.load(), sizeof(Memory), MS_SYNC); }

void FlightRecord::forget() noexcept {
  for (Memory* memory : mapped_) memory->over = 1;
  if (path_.empty()) return;
  ::unlink(path_.c_str());
  path_.clear();
}

void FlightRecord::stall_told() noexcept {
  const std::lock_guard lock(groups_);
  for (Memory* memory : mapped_) memory->stalls.fetch_add(1, std::memory_order_relaxed);
}

void FlightRecord::seen_in(const std::string& call) noexcept {
  Memory& memory = *memory_;
  copy_text(memory.call, sizeof memory.call, call);
}

}  // namespace drivetrain
