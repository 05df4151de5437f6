// From what CUDA says to the code of the contract and what a user can do: one table, device_errors.inc. What the error
// says of the rank comes from the thread that it is on: GPU by UUID, step, last unit. Thread: any.
#pragma once

#include <c10/util/Exception.h>

#include <cstddef>
#include <optional>
#include <string>

#include "plugin_calls/situations.h"

namespace drivetrain {

// By its number where it is an AcceleratorError, else by the words of its text. Nothing for what no row has.
DRIVETRAIN_INTERNAL std::optional<Situation> device_situation(const c10::Error& e);

// "\n   GPU 1 (NVIDIA H100, GPU-...) of rank 1, step 7: forward, micro-batch 2; last unit: ...", as much of it as this
// thread knows.
DRIVETRAIN_INTERNAL std::string device_place();
// The same for memory that is not to be had, with the processes that hold it.
DRIVETRAIN_INTERNAL std::string device_memory_place();

}  // namespace drivetrain

// For the program, of the exception that ends it: its code, and its text in `text`; 0: it is no error of a device.
extern "C" int drivetrain_device_error(char* text, size_t size);
