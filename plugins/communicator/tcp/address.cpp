#include "address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <boost/asio/ip/network_v4.hpp>
#include <boost/asio/ip/network_v6.hpp>

#include <cstring>
#include <memory>
#include <vector>

#include <drivetrain/error.h>

namespace drivetrain::tcp {
namespace {

namespace ip = boost::asio::ip;

struct Found {
  std::string interface;
  ip::address address;
  bool loopback = false;
};

// Addresses of interfaces that are up, those of IPv4 first. Link-local ones of IPv6 are left out: each host would have
// to write them in its own way.
std::vector<Found> addresses_here() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw fail(ErrorCode::io, "communicator/tcp: getifaddrs: ", std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::vector<Found> v4, v6;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const bool loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto* raw = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      v4.push_back({entry->ifa_name, ip::address_v4(ntohl(raw->sin_addr.s_addr)), loopback});
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const auto* raw = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      ip::address_v6::bytes_type bytes;
      std::memcpy(bytes.data(), &raw->sin6_addr, bytes.size());
      const ip::address_v6 address(bytes);
      if (!address.is_link_local()) v6.push_back({entry->ifa_name, address, loopback});
    }
  }
  v4.insert(v4.end(), v6.begin(), v6.end());
  return v4;
}

std::string text_of(const std::vector<Found>& found) {
  std::string text;
  for (const Found& f : found) text += concat(text.empty() ? "" : ", ", f.address.to_string(), " (", f.interface, ")");
  return text.empty() ? "none" : text;
}

bool inside(const ip::address& address, const std::string& network) {
  boost::system::error_code failure;
  if (address.is_v4()) {
    const ip::network_v4 net = ip::make_network_v4(network, failure);
    return !failure && ip::network_v4(address.to_v4(), net.prefix_length()).canonical() == net.canonical();
  }
  const ip::network_v6 net = ip::make_network_v6(network, failure);
  return !failure && ip::network_v6(address.to_v6(), net.prefix_length()).canonical() == net.canonical();
}

bool is_network(const std::string& text) {
  boost::system::error_code v4, v6;
  ip::make_network_v4(text, v4), ip::make_network_v6(text, v6);
  return !v4 || !v6;
}

// Written by the runtime (rendezvous.h).
std::optional<ip::address> told_address(const Services& services, int64_t rank) {
  const std::string key = concat("drivetrain/address/", rank);
  if (!services.store.has(key)) return std::nullopt;
  boost::system::error_code failure;
  const ip::address address = ip::make_address(services.store.get(key, 5), failure);
  return failure ? std::nullopt : std::optional(address);
}

}  // namespace

ip::address own_address(const std::optional<std::string>& interface, const Services& services) {
  const bool one_host = services.local_size == services.world_size;
  if (!interface && one_host) return ip::address_v4::loopback();
  const std::vector<Found> all = addresses_here();
  if (interface) {
    const bool network = is_network(*interface);
    for (const Found& f : all)
      if (network ? inside(f.address, *interface) : f.interface == *interface) return f.address;
    throw fail(
        ErrorCode::config, "communicator/tcp: \"interface\" is \"", *interface, "\", and rank ", services.rank,
        " has no address ", network ? "in that network" : "on an interface of that name",
        "; wanted the name of an interface that is up, or a network such as 10.0.0.0/8. There are: ", text_of(all));
  }
  if (const auto told = told_address(services, services.rank); told && !told->is_loopback()) return *told;
  // Ranks beside rank 0 may reach it by the loopback, and other hosts by an address that is here, too.
  if (const auto first = told_address(services, 0))
    for (const Found& f : all)
      if (f.address == *first && !f.loopback) return f.address;
  std::vector<Found> outside;
  for (const Found& f : all)
    if (!f.loopback) outside.push_back(f);
  if (outside.size() == 1) return outside[0].address;
  throw fail(ErrorCode::config, "communicator/tcp: ranks are on several hosts, and rank ", services.rank, " has ",
             outside.empty() ? "no address but the loopback" : concat("several addresses: ", text_of(outside)),
             ". Set \"interface\" in the section communicator to the name of an interface or to a network such as "
             "10.0.0.0/8 by which the hosts reach each other");
}

}  // namespace drivetrain::tcp
