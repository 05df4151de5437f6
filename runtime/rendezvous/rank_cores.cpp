// How many cores of its host a rank may use.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "rendezvous/rendezvous.h"

namespace drivetrain {

int64_t cores_of_rank(const RankEnvironment& env) {
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  int64_t bound = 0;
  if (const char* const text = std::getenv("DRIVETRAIN_BOUND_CORES"))
    std::from_chars(text, text + std::strlen(text), bound);
  return bound > 0 ? std::min(bound, cores) : std::max<int64_t>(1, cores / env.local_size);
}

}  // namespace drivetrain
