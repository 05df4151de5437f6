// How long messages take on a machine. A group is n ranks of one axis, `apart` ranks from each other; with
// ranks_per_host it follows which of its links leave a host. Pure; any thread.
#pragma once

#include <cstdint>

#include "predict/hardware.h"

namespace drivetrain {

struct RankGroup {
  int64_t ranks = 1, apart = 1;
  bool operator==(const RankGroup&) const = default;
};

// The slowest link of a ring through the group, as each rank of it sees it.
struct GroupLink {
  double bytes_per_s = 0, latency_s = 0;
  bool between_hosts = false;
};
DRIVETRAIN_INTERNAL GroupLink link_of(const RankGroup& group, const Hardware& hardware);

// Of the usual algorithms, with `bytes` as the size of what is summed or, gathered, of the whole: how much each rank
// sends, and through how many ranks one after another the last byte goes.
enum class Collective { all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, send };
// Sums of few bytes go along a tree, 2 log2(n) ranks deep, and the others round a ring.
enum class Algorithm { in_a_circle, tree };

struct Sent {
  double bytes = 0, hops = 0;
};
DRIVETRAIN_INTERNAL Sent sent_by_rank(Collective collective, double bytes, int64_t ranks,
                                      Algorithm algorithm = Algorithm::in_a_circle);

// Seconds in which every rank of the group sends `bytes` through a ring, or straight to each of the others.
DRIVETRAIN_INTERNAL double ring_seconds(double bytes, double hops, const RankGroup& group, const Hardware& hardware);
DRIVETRAIN_INTERNAL double direct_seconds(double bytes, double hops, const RankGroup& group, const Hardware& hardware);

// Seconds of one call. All-reduces take the algorithm that is faster; an all-to-all sends each part directly, so what
// stays on the host is not in the network's way.
DRIVETRAIN_INTERNAL double collective_seconds(Collective collective, double bytes, const RankGroup& group,
                                              const Hardware& hardware);

}  // namespace drivetrain
