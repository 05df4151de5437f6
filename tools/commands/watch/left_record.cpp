#include "watch/left_record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>

#include <drivetrain/error.h>

#include "flight/memory.h"

namespace drivetrain {
namespace {

using Memory = FlightRecord::Memory;

std::string time_of_day(int64_t unix_ns) {
  const std::time_t seconds = unix_ns / 1'000'000'000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

// Neither a link of a stranger nor what is no file: a pipe would be waited for.
class RecordFile {
 public:
  explicit RecordFile(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) {
    if (fd_ < 0 && errno == ELOOP)
      throw fail(ErrorCode::io, path, " cannot be read: it is a symbolic link, which is not followed");
    if (fd_ < 0) throw fail(ErrorCode::io, path, " cannot be read: ", std::strerror(errno));
  }
  ~RecordFile() { ::close(fd_); }
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  bool has_size(size_t bytes) const {
    struct stat facts = {};
    return fstat(fd_, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size == static_cast<off_t>(bytes);
  }
  bool read(void* to) const { return pread(fd_, to, sizeof(Memory), 0) == static_cast<ssize_t>(sizeof(Memory)); }

 private:
  const int fd_;
};

WorkSeconds work_in(const Memory& memory, int64_t steps) {
  WorkSeconds work = {};
  for (size_t part = 0; part < kWorkParts && steps > 0; ++part)
    work[part] = in_seconds(memory.work_ns[part]) / static_cast<double>(steps);
  return work;
}

}  // namespace

LeftRecord read_record(const std::string& path) {
  const auto wrong = [&](const auto&... what) {
    return fail(ErrorCode::io, path, " is no flight record of this version: ", what...);
  };
  const RecordFile file(path);
  const auto bytes = std::make_unique<Memory>();
  const auto sized = file.has_size(sizeof(Memory));
  if (!copy_record([&](void* to) { return file.read(to); }, *bytes))
    throw wrong("it should have ", sizeof(Memory), " bytes");
  const Memory& memory = *bytes;
  if (std::memcmp(memory.magic, kFlightMagic, sizeof kFlightMagic) != 0) throw wrong("its first bytes are others");
  if (memory.version != kFlightVersion)
    throw wrong("it has version ", memory.version, ", and this program reads ", kFlightVersion);
  if (!sized) throw wrong("it should have ", sizeof(Memory), " bytes");
  LeftRecord left;
  left.rank = memory.rank, left.world_size = memory.world_size, left.pid = memory.pid, left.run = memory.run;
  left.host = text_of(memory.host), left.call = text_of(memory.call);
  left.last_s = in_seconds(memory.changed_ns);
  left.written_ns = memory.start_unix_ns + memory.changed_ns, left.written = time_of_day(left.written_ns);
  left.place = place_in(memory), left.entries = entries_in(memory), left.reached = reached_in(memory);
  left.work_steps = std::max<int64_t>(0, memory.work_steps);
  left.work = work_in(memory, left.work_steps);
  if (static_cast<int>(left.place.doing) >= kFlightDoings) throw wrong("it names a part of a step that there is not");
  if (left.rank < 0 || left.world_size < 1 || left.rank >= left.world_size)
    throw wrong("it is of rank ", left.rank, " of ", left.world_size);
  for (const FlightEntry& entry : left.entries)
    if (static_cast<int>(entry.call.op) >= kFlightOps || entry.state > FlightState::failed)
      throw wrong("entry ", entry.serial, " names an operation that there is not");
  return left;
}

}  // namespace drivetrain
