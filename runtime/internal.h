// Marks what commands (tools/) and tests reach of the insides of libdrivetrain.so, which exports it apart from the
// contract, as version DRIVETRAIN_PRIVATE (tools/cmake/contract_exports.cmake).
#pragma once

#define DRIVETRAIN_INTERNAL __attribute__((visibility("default")))
