// What a running process does, as the kernel counts it: to tell a rank that still works from one that never will.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace drivetrain::program {

struct Activity {
  char state = '?';             // of its main thread, as in /proc/PID/stat
  bool waits_for_disk = false;  // some thread does
  int64_t cpu_ticks = 0, io_bytes = 0;

  std::string text() const;  // "asleep"
};
Activity activity_of(pid_t pid);

// How long a process has read and written nothing to speak of, waiting for a disk counted as below. What a loop that
// looks at the clock or at /proc reads is far less.
class FileWork {
 public:
  double quiet_seconds(const Activity& activity, double now);
  // "computes: 12.5 s of processor time; its main thread is asleep", since the first look.
  std::string text(const Activity& activity) const;

 private:
  bool watching_ = false;
  double since_ = 0;
  int64_t io_bytes_ = 0, first_ticks_ = 0;
};

// How long a process has done nothing worth waiting for: nothing read or written, and no half second of computing or,
// where less than ten seconds are allowed, no twentieth of them, which a process gets beside many others too. Waiting
// for a disk counts as work for ten times as long: writing out large files takes minutes, a server that is gone for
// ever.
class Stillness {
 public:
  double seconds(const Activity& activity, double now, double may_take_s);

 private:
  bool watching_ = false;
  double since_ = 0;
  int64_t cpu_ticks_ = 0, io_bytes_ = 0;
};

}  // namespace drivetrain::program
