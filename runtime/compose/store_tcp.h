// The store between processes. Thread: any; a call waits for others in progress. Errors: Error(communication) naming
// the address.
#pragma once

#include <memory>

#include "compose/rendezvous.h"

namespace drivetrain {

std::shared_ptr<Store> make_tcp_store(const RankEnvironment& env, double timeout_s);

}  // namespace drivetrain
