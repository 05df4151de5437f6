// What keeps a host from taking part before anything is started there, in the words of an error.
#pragma once

#include <string>

#include "launch/host_connection.h"
#include "launch/message.h"

namespace drivetrain::program {

struct HostProblem {
  int code = 0;  // of the contract; 0: there is none
  std::string text;
};

// An agent of another version, by its hello. `program`: what was started there.
HostProblem version_problem(const Message& hello, const std::string& program);

// Why a connection is closed; waits a moment for ssh's end. `greeted`: after its hello.
HostProblem connection_problem(HostConnection& connection, const std::string& program, bool greeted);

}  // namespace drivetrain::program
