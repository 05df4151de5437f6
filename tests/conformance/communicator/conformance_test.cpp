// The conformance suite of communicator over the one whose ranks can be threads of one process. The others bring ranks
// of their own: plugins/communicator/mpi/under_mpirun, plugins/communicator/nccl/on_host and on_gpu.
#include <gtest/gtest.h>

#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {
namespace {

TEST(CommunicatorConformance, local_passes) { run_suite({"communicator", "local"}); }

}  // namespace
}  // namespace drivetrain::test
