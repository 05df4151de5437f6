// The conformance suite of communicator over those whose ranks can be threads of one process. The others bring ranks
// of their own: plugins/communicator/mpi/under_mpirun, plugins/communicator/nccl/on_host and on_gpu.
#include <gtest/gtest.h>

#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {
namespace {

TEST(CommunicatorConformance, local_passes) { run_suite({"communicator", "local"}); }
TEST(CommunicatorConformance, tcp_passes) { run_suite({"communicator", "tcp"}); }

}  // namespace
}  // namespace drivetrain::test
