// Marks what tests of the runtime's insides and the benchmarks reach. libdrivetrain.so hides it all the same: its
// version script exports the contract only (tools/cmake/contract_exports.cmake).
#pragma once

#define DRIVETRAIN_INTERNAL __attribute__((visibility("default")))
