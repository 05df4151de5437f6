#include "observe/memory.h"

#include <sys/resource.h>

namespace drivetrain {

double peak_memory_bytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024.0;  // Linux counts kilobytes
}

}  // namespace drivetrain
