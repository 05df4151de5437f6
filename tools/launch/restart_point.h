// Where a run would go on from, as its rank 0 tells the launcher over a pipe (tools/commands/train/restart_points.h):
// once the run's folder is taken, and after each checkpoint that is complete. Its last word is that all is done.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launch/rank_process.h"

namespace drivetrain::program {

struct RestartPoint {
  std::string tag;         // of a checkpoint; "": there is none, the run begins
  std::string output_dir;  // absolute
};

// The launcher's end of the pipe, for one start of the ranks.
class RestartPoints {
 public:
  RestartPoints() = default;
  using Listener = std::function<void(const std::string&)>;
  // `listener` gets every byte as it comes.
  explicit RestartPoints(Descriptor from, Listener listener = {})
      : from_(std::move(from)), listener_(std::move(listener)) {}

  int fd() const { return from_.get(); }  // -1: there is no pipe, or its other end is closed
  // Takes what is there now; false: nothing was.
  bool take();
  void take(const std::string& bytes);  // of a rank 0 on another host

  const std::optional<RestartPoint>& newest() const { return newest_; }  // nothing: the run's folder was not taken
  bool has_new_checkpoint() const { return count_ > 1; }                 // saved since this start
  bool run_is_done() const { return done_; }                             // final weights and all

 private:
  Descriptor from_;
  Listener listener_;
  std::string unfinished_;
  std::optional<RestartPoint> newest_;
  int count_ = 0;
  bool done_ = false;
};

}  // namespace drivetrain::program
