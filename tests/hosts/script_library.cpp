// In place of libdrivetrain.so and of the commands in an install folder of a test: a rank is then the script that the
// variable RANK_SCRIPT has, so that starting, watching and ending ranks is tested with the real program and without
// training. The script finds the rank's own command line in RANK_COMMAND.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

extern "C" __attribute__((visibility("default"))) const char* drivetrain_release() { return DRIVETRAIN_RELEASE; }

extern "C" __attribute__((visibility("default"))) int drivetrain_run(const void*) {
  const char* const script = std::getenv("RANK_SCRIPT");
  if (!script) return 2;
  std::ifstream line("/proc/self/cmdline");
  std::string words{std::istreambuf_iterator<char>(line), {}};
  std::replace(words.begin(), words.end(), '\0', ' ');
  setenv("RANK_COMMAND", words.c_str(), 1);
  execl("/bin/bash", "bash", "-c", script, static_cast<char*>(nullptr));
  return 127;
}
