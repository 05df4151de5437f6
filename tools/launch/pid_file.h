// `launch --save_pid`: /tmp/<pid>.deepspeed, where programs that were written for DeepSpeed's launcher look for the pid
// to signal. It is there as long as the launcher is.
#pragma once

#include <string>

namespace drivetrain::program {

class PidFile {
 public:
  explicit PidFile(bool wanted);  // throws HostError
  ~PidFile();
  PidFile(const PidFile&) = delete;
  PidFile& operator=(const PidFile&) = delete;

 private:
  std::string path_;  // "": there is none
};

}  // namespace drivetrain::program
