#include "predict/links.h"

#include <algorithm>
#include <cmath>

namespace drivetrain {
namespace {

double of(const LinkRates& link) { return link.gb_per_s * 1e9 * link.share; }

// Ranks of the group on one host.
int64_t ranks_on_host(const RankGroup& group, const Hardware& hardware) {
  return std::clamp<int64_t>(hardware.ranks_per_host / std::max<int64_t>(group.apart, 1), 1, group.ranks);
}

// Groups like this one whose rings leave the same host: each has its share of the network.
double groups_of_host(const RankGroup& group, const Hardware& hardware) {
  return static_cast<double>(std::max<int64_t>(1, hardware.ranks_per_host / ranks_on_host(group, hardware)));
}

}  // namespace

GroupLink link_of(const RankGroup& group, const Hardware& hardware) {
  const double near = of(hardware.host_link);
  if (group.ranks * group.apart <= hardware.ranks_per_host || group.ranks == 1)
    return {near, hardware.host_link.latency_us * 1e-6, false};
  double far = of(hardware.network) / groups_of_host(group, hardware);
  if (ranks_on_host(group, hardware) > 1) far = std::min(far, near);
  return {far, hardware.network.latency_us * 1e-6, true};
}

Sent sent_by_rank(Collective collective, double bytes, int64_t ranks, Algorithm algorithm) {
  if (ranks < 2) return {};
  const double n = static_cast<double>(ranks), others = (n - 1) / n;
  const double depth = std::ceil(std::log2(n));
  switch (collective) {
    case Collective::all_reduce:
      if (algorithm == Algorithm::tree) return {2 * bytes, 2 * depth};
      return {2 * others * bytes, 2 * (n - 1)};
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::all_to_all:
      return {others * bytes, n - 1};
    case Collective::broadcast:
      return {bytes, algorithm == Algorithm::tree ? depth : n - 1};
    case Collective::send:
      break;
  }
  return {bytes, 1};
}

double ring_seconds(double bytes, double hops, const RankGroup& group, const Hardware& hardware) {
  if (group.ranks < 2) return 0;
  const GroupLink link = link_of(group, hardware);
  return bytes / link.bytes_per_s + hops * link.latency_s;
}

double direct_seconds(double bytes, double hops, const RankGroup& group, const Hardware& hardware) {
  if (group.ranks < 2) return 0;
  const double others = static_cast<double>(group.ranks - 1);
  const double inside = static_cast<double>(ranks_on_host(group, hardware) - 1);
  const double near = bytes * inside / others / of(hardware.host_link);
  const double network = of(hardware.network) / static_cast<double>(hardware.ranks_per_host);
  const double far = bytes * (others - inside) / others / network;
  return std::max(near, far) + hops * link_of(group, hardware).latency_s;
}

double collective_seconds(Collective collective, double bytes, const RankGroup& group, const Hardware& hardware) {
  const auto seconds = [&](Algorithm algorithm) {
    const Sent sent = sent_by_rank(collective, bytes, group.ranks, algorithm);
    return collective == Collective::all_to_all ? direct_seconds(sent.bytes, sent.hops, group, hardware)
                                                : ring_seconds(sent.bytes, sent.hops, group, hardware);
  };
  const bool has_tree = collective == Collective::all_reduce || collective == Collective::broadcast;
  return has_tree ? std::min(seconds(Algorithm::in_a_circle), seconds(Algorithm::tree))
                  : seconds(Algorithm::in_a_circle);
}

}  // namespace drivetrain
