// Threads of the runtime's own that serve no plugin: they keep the store, listen to other ranks or watch. What they
// read and write is no work of a plugin that they run beside.
#pragma once

#include "internal.h"

namespace drivetrain {

// Made first in such a thread; it holds until the thread's end.
class DRIVETRAIN_INTERNAL OwnThread {
 public:
  OwnThread();
  ~OwnThread();
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;

 private:
  int place_ = -1;
};

// `thread`: its id. Any thread.
DRIVETRAIN_INTERNAL bool is_own_thread(int thread);

}  // namespace drivetrain
