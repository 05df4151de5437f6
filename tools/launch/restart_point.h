// Where a run would go on from, as its rank 0 tells the launcher over a pipe (tools/commands/train/restart_points.h):
// once the run's folder is taken, and after each checkpoint that is complete. Its last word is that all is done.
#pragma once

#include <optional>
#include <string>

namespace drivetrain::program {

struct RestartPoint {
  std::string tag;         // of a checkpoint; "": there is none, the run begins
  std::string output_dir;  // absolute
};

// Of one start of the ranks.
class RestartPoints {
 public:
  void take(const std::string& bytes);  // as they come

  const std::optional<RestartPoint>& newest() const { return newest_; }  // nothing: the run's folder was not taken
  bool has_new_checkpoint() const { return count_ > 1; }                 // saved since this start
  bool run_is_done() const { return done_; }                             // final weights and all

 private:
  std::string unfinished_;
  std::optional<RestartPoint> newest_;
  int count_ = 0;
  bool done_ = false;
};

}  // namespace drivetrain::program
