// The address of this host at which other ranks reach this one.
//
// Thread: main. Errors: Error(config) where `interface` fits none or, without it, where there is a choice to make; it
// names the addresses that there are.
#pragma once

#include <boost/asio/ip/address.hpp>

#include <optional>
#include <string>

#include <drivetrain/services.h>

namespace drivetrain::tcp {

// `interface`: the name of an interface ("eth0") or a network ("10.0.0.0/8"), the same option on all ranks. Without it:
// the loopback where all ranks are on this host; else the address by which rank 0 and this rank reach each other, where
// the runtime told it; else the only one that there is.
boost::asio::ip::address own_address(const std::optional<std::string>& interface, const Services& services);

}  // namespace drivetrain::tcp
