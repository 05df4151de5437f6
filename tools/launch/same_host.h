// Hosts that a run has twice, under two names or by name and address: two agents would give the same cores and GPUs to
// the ranks of both.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "launch/hosts_request.h"

namespace drivetrain::program {

// Of one host: addresses as numbers, and kThisHost for any that an interface of this host has.
using HostAddresses = std::set<std::string>;
inline constexpr const char* kThisHost = "this host";

// Looks the name up; empty: it has no address, as an alias of ssh's configuration has none. Loopback addresses other
// than 127.0.0.1 and ::1 are themselves alone: each may be a host, to whoever runs several on one machine.
HostAddresses addresses_of_host(const std::string& name);

// What is wrong with hosts and spares whose addresses these are, in that order; "": each is another host.
std::string same_host_problem(const HostsRequest& request, const std::vector<HostAddresses>& addresses);

// Looks up all of them at once. Throws UsageError. Names that are not answered in time are left to ssh.
void refuse_same_hosts(const HostsRequest& request);

}  // namespace drivetrain::program
