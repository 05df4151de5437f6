#include "launch/host_pool.h"

#include <algorithm>
#include <numeric>

#include "base/printable.h"
#include "cli/commands.h"
#include "cli/usage_error.h"

namespace drivetrain::program {
namespace {

constexpr int kMostSlotsOfHost = 4096;

Host spare_of(const std::string& text, int slots) {
  const auto refuse_spare = [&](const std::string& problem) {
    throw UsageError("launch: --spare wants HOST or HOST:K with , between them, such as worker-8:4,worker-9; " +
                     problem);
  };
  const bool bracketed = text.starts_with('[') && text.find(']') != std::string::npos;
  const size_t colon = text.find(':', bracketed ? text.find(']') : 0);
  Host host{bracketed ? text.substr(1, text.find(']') - 1) : text.substr(0, colon), {}};
  if (const std::string problem = host_name_problem(host.name); !problem.empty()) refuse_spare(problem);
  if (colon != std::string::npos) {
    const auto given = cli::read_whole(text.substr(colon + 1));
    if (!given || *given < 1 || *given > kMostSlotsOfHost)
      refuse_spare("\"" + shown(text) + "\" gives no number of ranks from 1 to " + std::to_string(kMostSlotsOfHost) +
                   " (an IPv6 address stands in brackets)");
    slots = static_cast<int>(*given);
  }
  host.slots.resize(static_cast<size_t>(slots));
  std::iota(host.slots.begin(), host.slots.end(), 0);
  return host;
}

auto host_with(std::vector<Host>& hosts, const std::string& name) {
  return std::find_if(hosts.begin(), hosts.end(), [&](const Host& host) { return host.name == name; });
}

bool is_one_of(const Host& host, const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), host.name) != names.end();
}

}  // namespace

std::vector<Host> parse_spares(const std::string& text, const std::vector<Host>& hosts) {
  size_t most = 1;
  for (const Host& host : hosts) most = std::max(most, host.slots.size());
  std::vector<Host> spares, all = hosts;
  for (const std::string& part : cli::split(text, ',')) {
    spares.push_back(spare_of(part, static_cast<int>(most)));
    const std::string& name = spares.back().name;
    if (std::any_of(all.begin(), all.end(), [&](const Host& host) { return same_host_name(host.name, name); }))
      throw UsageError("launch: --spare: the host " + name + " is one of the run already, or stands there twice");
    all.push_back(spares.back());
  }
  if (spares.empty()) throw UsageError("launch: --spare names no host");
  return spares;
}

const std::string& HostPool::host_of_rank(int rank) const {
  for (const Host& host : hosts_)
    if ((rank -= static_cast<int>(host.slots.size())) < 0) return host.name;
  return hosts_.back().name;
}

int HostPool::place_of_rank(int rank) {
  for (const Host& host : hosts_) {
    const int slots = static_cast<int>(host.slots.size());
    if (rank >= slots) {
      rank -= slots;
      continue;
    }
    auto at = std::find(seen_.begin(), seen_.end(), host.name);
    if (at == seen_.end()) at = seen_.insert(seen_.end(), host.name);
    return static_cast<int>(at - seen_.begin()) * kMostSlotsOfHost + host.slots[static_cast<size_t>(rank)];
  }
  return -1;
}

std::string HostPool::replace(const std::string& name) {
  const auto host = host_with(hosts_, name);
  const auto spare = std::find_if(spares_.begin(), spares_.end(),
                                  [&](const Host& one) { return one.slots.size() >= host->slots.size(); });
  if (spare == spares_.end()) return "";
  const size_t ranks = host->slots.size();
  *host = *spare;
  host->slots.resize(ranks);
  spares_.erase(spare);
  return host->name;
}

bool HostPool::has(const std::string& name) const {
  return std::any_of(hosts_.begin(), hosts_.end(), [&](const Host& host) { return host.name == name; });
}

int HostPool::ranks_without(const std::vector<std::string>& names) const {
  int count = 0;
  for (const Host& host : hosts_) count += is_one_of(host, names) ? 0 : static_cast<int>(host.slots.size());
  return count;
}

void HostPool::leave_out(const std::vector<std::string>& names) {
  std::erase_if(hosts_, [&](const Host& host) { return is_one_of(host, names); });
}

void HostPool::leave_out_slot_of(int rank) {
  for (size_t i = 0; i < hosts_.size(); rank -= static_cast<int>(hosts_[i++].slots.size())) {
    std::vector<int>& slots = hosts_[i].slots;
    if (rank >= static_cast<int>(slots.size())) continue;
    slots.erase(slots.begin() + rank);
    if (slots.empty()) hosts_.erase(hosts_.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
}

std::vector<int> HostPool::whole_hosts_without(const std::vector<std::string>& names, int least) const {
  std::vector<int> numbers;
  int ranks = 0, count = 0;
  for (const Host& host : hosts_) {
    if (is_one_of(host, names)) continue;
    ranks += static_cast<int>(host.slots.size());
    if (++count >= least) numbers.push_back(ranks);
  }
  std::reverse(numbers.begin(), numbers.end());
  return numbers;
}

std::vector<Host> HostPool::hosts_of_ranks(int count) const {
  std::vector<Host> list;
  for (const Host& host : hosts_) {
    list.push_back(host);
    list.back().slots.resize(std::min(static_cast<size_t>(count), host.slots.size()));
    count -= static_cast<int>(list.back().slots.size());
    if (count == 0) break;
  }
  return list;
}

void HostPool::keep_ranks(int count) {
  for (Host& host : hosts_) {
    if (count == 0) stands_by(host);
    host.slots.resize(std::min(static_cast<size_t>(count), host.slots.size()));
    count -= static_cast<int>(host.slots.size());
  }
  std::erase_if(hosts_, [](const Host& host) { return host.slots.empty(); });
}

}  // namespace drivetrain::program
