#include "launch/pid_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "launch/meeting.h"
#include "launch/write_text.h"

namespace drivetrain::program {

// Everybody may write to /tmp: what lies at the path is somebody else's, or of a launcher that was killed.
PidFile::PidFile(bool wanted) {
  if (!wanted) return;
  const std::string pid = std::to_string(getpid()), path = "/tmp/" + pid + ".deepspeed";
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.get() < 0)
    throw HostError(8, "--save_pid: the file " + path + " cannot be made: " + std::strerror(errno) +
                           (errno == EEXIST ? "; remove it, or start again" : ""));
  path_ = path;
  write_text(file.get(), pid);
}

PidFile::~PidFile() {
  if (!path_.empty()) unlink(path_.c_str());
}

}  // namespace drivetrain::program
