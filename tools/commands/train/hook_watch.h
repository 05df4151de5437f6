// Ends a run whose plugin does not come back: a thread of its own looks at every plugin call of this process. A call of
// a checkpoint store or format, and a dataset's `open`, may take as long as it moves bytes of files.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "internal.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL HookWatch {
 public:
  // `report` is called on the watch's thread, once, with the call ("optimizer/mine, hook update, rank 1") that has
  // lasted for `limit_s` seconds, or a little longer. 0: nothing is watched.
  HookWatch(double limit_s, std::function<void(const std::string& call)> report);
  ~HookWatch();
  HookWatch(const HookWatch&) = delete;
  HookWatch& operator=(const HookWatch&) = delete;

 private:
  void watch();

  const double limit_s_;
  const std::function<void(const std::string&)> report_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace drivetrain
