// `--enable_each_rank_log FOLDER`: what a rank writes goes to FOLDER/<begin>_rank<k>.log, both streams of it, in place
// of the launcher's. Only the user can read the file; a link or somebody else's file at its path is refused.
#pragma once

#include <functional>
#include <string>

#include "launch/rank_process.h"
#include "launch/rank_setup.h"

namespace drivetrain::program {

// "20261123235959", local time, as DeepSpeed's launcher names its logs.
std::string log_begin_now();

// Makes the folder if it is not there. Throws HostError if it cannot be one.
void make_log_folder(const std::string& folder);

std::string log_path(const RankSetup& setup, int rank);

class RankLog {
 public:
  using Say = std::function<void(const std::string&)>;
  // Throws std::system_error. `say`: what takes the one sentence about a file that cannot be written to its end.
  RankLog(const RankSetup& setup, int rank, Say say);

  const std::string& path() const { return path_; }
  int fd() const { return file_.get(); }  // each write goes to the end
  void write(const std::string& bytes);

 private:
  std::string path_;
  Descriptor file_;
  Say say_;
  bool failed_ = false;
};

}  // namespace drivetrain::program
