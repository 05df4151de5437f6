#include "launch/same_host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "cli/usage_error.h"
#include "launch/meeting.h"
#include "launch/this_host.h"

namespace drivetrain::program {
namespace {

constexpr std::chrono::seconds kLookupsMayTake(2);
constexpr size_t kLookupsAtOnce = 32;

std::string number_of(const sockaddr* address) {
  char text[NI_MAXHOST] = "";
  const auto size = static_cast<socklen_t>(address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  return getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

HostAddresses addresses_of_interfaces() {
  HostAddresses own{"127.0.0.1", "::1"};
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return own;
  for (const ifaddrs* one = first; one; one = one->ifa_next)
    if (one->ifa_addr && (one->ifa_addr->sa_family == AF_INET || one->ifa_addr->sa_family == AF_INET6))
      if (const std::string address = number_of(one->ifa_addr); !is_loopback(address)) own.insert(address);
  freeifaddrs(first);
  return own;
}

// Threads that wait for a name server are left behind: they hold this and nothing else.
struct Lookups {
  std::vector<std::string> names;
  std::vector<HostAddresses> found;
  size_t next = 0, done = 0;
  std::mutex mutex;
  std::condition_variable changed;
};

void look_up(const std::shared_ptr<Lookups>& all) {
  std::unique_lock lock(all->mutex);
  while (all->next < all->names.size()) {
    const size_t i = all->next++;
    lock.unlock();
    HostAddresses addresses = addresses_of_host(all->names[i]);
    lock.lock();
    all->found[i] = std::move(addresses);
    ++all->done;
  }
  all->changed.notify_one();
}

std::string twice(const HostsRequest& request, const Host& before, const Host& again, const std::string& address) {
  const std::string same = "the host " + again.name + " is the host " + before.name,
                    both = " (both are " + address + ")";
  if (before.line == 0 || again.line == 0) return "--spare: " + same + both + "; name each host once";
  return request.hostfile + ":" + std::to_string(again.line) + ": " + same + " of line " + std::to_string(before.line) +
         both + "; give it one line with all its slots";
}

std::vector<Host> all_hosts(const HostsRequest& request) {
  std::vector<Host> all = request.hosts;
  all.insert(all.end(), request.spares.begin(), request.spares.end());
  return all;
}

}  // namespace

HostAddresses addresses_of_host(const std::string& name) {
  static const HostAddresses own = addresses_of_interfaces();
  HostAddresses addresses;
  if (is_this_host(name)) addresses.insert(kThisHost);
  addrinfo wanted = {}, *first = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(name.c_str(), nullptr, &wanted, &first) != 0) return addresses;
  for (const addrinfo* one = first; one; one = one->ai_next) {
    const std::string address = number_of(one->ai_addr);
    addresses.insert(own.count(address) ? kThisHost : address);
  }
  freeaddrinfo(first);
  return addresses;
}

std::string same_host_problem(const HostsRequest& request, const std::vector<HostAddresses>& addresses) {
  const std::vector<Host> all = all_hosts(request);
  std::map<std::string, const Host*> owners;
  for (size_t i = 0; i < all.size(); ++i)
    for (const std::string& address : addresses[i]) {
      const Host &before = *owners.try_emplace(address, &all[i]).first->second, &again = all[i];
      if (&before != &again) return twice(request, before, again, address);
    }
  return "";
}

void refuse_same_hosts(const HostsRequest& request) {
  if (!request.over_ssh || request.hostfile.empty()) return;
  const auto lookups = std::make_shared<Lookups>();
  for (const Host& host : all_hosts(request)) lookups->names.push_back(host.name);
  if (lookups->names.size() < 2) return;
  lookups->found.resize(lookups->names.size());
  for (size_t i = 0; i < std::min(kLookupsAtOnce, lookups->names.size()); ++i) std::thread(look_up, lookups).detach();
  std::unique_lock lock(lookups->mutex);
  lookups->changed.wait_for(lock, kLookupsMayTake, [&] { return lookups->done == lookups->names.size(); });
  const std::string problem = same_host_problem(request, lookups->found);
  if (!problem.empty()) throw UsageError("launch: " + problem);
}

}  // namespace drivetrain::program
