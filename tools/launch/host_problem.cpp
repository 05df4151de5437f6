#include "launch/host_problem.h"

namespace drivetrain::program {

HostProblem version_problem(const Message& hello, const std::string& program) {
  const std::vector<std::string> fields = unpacked(hello.text);
  if (fields.size() > 1 && fields[0] == kAgentProtocol && fields[1] == DRIVETRAIN_RELEASE) return {};
  return {2, "it has drivetrain " + (fields.size() > 1 ? fields[1] : std::string("of an unknown version")) + " at " +
                 program + ", and this host " DRIVETRAIN_RELEASE "; install the same version on both"};
}

HostProblem connection_problem(HostConnection& connection, const std::string& program, bool greeted) {
  const std::string reason = connection.reason();
  const int code = connection.exit_code();
  if (reason.find("cannot run ssh") != std::string::npos)
    return {2, "this host has no ssh to reach it with: " + reason};
  if (code == 126 || code == 127)
    return {2, "there is no program " + program +
                   " that can be run; install Drivetrain at the same path on every host (" + reason + ")"};
  return {5, greeted ? "the connection was lost: " + reason
                     : "it cannot be reached by ssh: " + reason + "; `ssh " + connection.name() +
                           " true` has to work without a question"};
}

}  // namespace drivetrain::program
