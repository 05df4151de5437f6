// In place of libdrivetrain.so in an install folder of a test: a rank is then the script that the variable RANK_SCRIPT
// has, so that starting, watching and ending ranks is tested with the real program and without training.
#include <unistd.h>

#include <cstdlib>

extern "C" __attribute__((visibility("default"))) int drivetrain_run(const void*) {
  const char* const script = std::getenv("RANK_SCRIPT");
  if (!script) return 2;
  execl("/bin/bash", "bash", "-c", script, static_cast<char*>(nullptr));
  return 127;
}
