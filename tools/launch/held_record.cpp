#include "launch/held_record.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <memory>

#include "flight/memory.h"

namespace drivetrain::program {
namespace {

using Memory = FlightRecord::Memory;

bool read_all(int fd, Memory& to) {
  return copy_record([&](void* bytes) { return pread(fd, bytes, sizeof(Memory), 0) == ssize_t{sizeof(Memory)}; }, to);
}

std::string file_of(const Memory& memory) {
  char name[32];
  std::snprintf(name, sizeof name, "/flight/rank_%04lld", static_cast<long long>(memory.rank));
  return std::string(memory.folder, strnlen(memory.folder, sizeof memory.folder)) + name;
}

// Where the rank went on to write.
void take_newer(Memory& memory) {
  const Descriptor file(open(file_of(memory).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  const auto newer = std::make_unique<Memory>();
  if (file.get() < 0 || !read_all(file.get(), *newer) || newer->run != memory.run || newer->pid != memory.pid) return;
  std::memcpy(static_cast<void*>(&memory), newer.get(), sizeof memory);
}

}  // namespace

HeldRecord HeldRecord::make() {
  HeldRecord record;
  Descriptor memory(memfd_create("drivetrain flight record", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (memory.get() < 0 || ftruncate(memory.get(), sizeof(Memory)) != 0) return record;
  fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  record.memory_ = std::move(memory);
  return record;
}

std::optional<std::string> HeldRecord::bytes() const {
  const auto memory = std::make_unique<Memory>();
  if (fd() < 0 || !read_all(fd(), *memory)) return std::nullopt;
  if (std::memcmp(memory->magic, kFlightMagic, sizeof kFlightMagic) != 0 || memory->over != 0) return std::nullopt;
  if (memory->in_file != 0) take_newer(*memory);
  return std::string(reinterpret_cast<const char*>(memory.get()), sizeof(Memory));
}

bool HeldRecord::stall_was_told() {
  uint32_t now = 0;
  if (fd() < 0 || pread(fd(), &now, sizeof now, offsetof(Memory, stalls)) != ssize_t{sizeof now}) return false;
  return std::exchange(stalls_, now) != now;
}

}  // namespace drivetrain::program
