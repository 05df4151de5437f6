// How many cores of its host a rank may use.
#include <algorithm>

#include <drivetrain/toolkit/host/processors.h>

#include "base/rank_variables.h"
#include "rendezvous/rendezvous.h"

namespace drivetrain {

int64_t cores_of_rank(const RankEnvironment& env) {
  const ProcessorShare share = processor_share();
  const int64_t bound = RankStart::read().bound_cores;
  // The quota is of all ranks of this host, cores that it is bound to are a rank's own.
  const int64_t of_quota = share.quota ? static_cast<int64_t>(*share.quota) / env.local_size : share.cores;
  return std::max<int64_t>(1, bound > 0 ? std::min({bound, share.cores, of_quota}) : share.usable() / env.local_size);
}

}  // namespace drivetrain
