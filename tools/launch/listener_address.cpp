#include "launch/listener_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <system_error>

namespace drivetrain::program {
namespace {

std::vector<std::string> addresses_where(const std::function<bool(const ifaddrs&)>& wanted) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw std::system_error(errno, std::generic_category(), "launch: addresses of this host");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::vector<std::string> v4, v6;
  for (const ifaddrs* one = list; one; one = one->ifa_next) {
    if (!one->ifa_addr || !wanted(*one)) continue;
    if (one->ifa_addr->sa_family == AF_INET) v4.push_back(address_text(one->ifa_addr));
    if (one->ifa_addr->sa_family == AF_INET6) v6.push_back(address_text(one->ifa_addr));
  }
  v4.insert(v4.end(), v6.begin(), v6.end());
  return v4;
}

bool is_link_local(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

}  // namespace

std::string address_text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
    return text;
  }
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&v6))
    inet_ntop(AF_INET, v6.s6_addr + 12, text, sizeof text);  // as it reached a socket of both kinds
  else
    inet_ntop(AF_INET6, &v6, text, sizeof text);
  return text;
}

std::vector<std::string> addresses_for_others() {
  std::vector<std::string> list = addresses_where([](const ifaddrs& one) {
    return (one.ifa_flags & IFF_UP) && !(one.ifa_flags & IFF_LOOPBACK) && !is_link_local(one.ifa_addr);
  });
  if (list.empty()) list.push_back("127.0.0.1");
  return list;
}

std::string network_of_this_process() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  char net[64] = {};
  if (!(file >> boot) || readlink("/proc/self/ns/net", net, sizeof net - 1) <= 0) return "?";
  std::string text = boot + ":";
  for (const char* c = net; *c; ++c)
    if (*c >= '0' && *c <= '9') text += *c;
  return text;
}

std::string ListenerAddress::text() const {
  std::string line = key + " " + std::to_string(port) + " " + network;
  for (const std::string& address : addresses) line += " " + address;
  return line;
}

ListenerAddress ListenerAddress::of(const std::string& text) {
  std::istringstream words(text);
  ListenerAddress sign;
  if (!(words >> sign.key >> sign.port >> sign.network))
    throw std::runtime_error("the launcher's address is not whole");
  for (std::string address; words >> address;) sign.addresses.push_back(address);
  return sign;
}

std::vector<std::string> ListenerAddress::to_try() const {
  const std::string here = network_of_this_process();
  if (here == network || here == "?" || network == "?") return addresses;
  const std::vector<std::string> own = addresses_where([](const ifaddrs&) { return true; });
  std::vector<std::string> others;
  for (const std::string& address : addresses)
    if (std::find(own.begin(), own.end(), address) == own.end()) others.push_back(address);
  return others;
}

std::string ListenerAddress::secret(const std::string& address) const {
  return key + " " + address + " " + std::to_string(port);
}

}  // namespace drivetrain::program
