// What NCCL answers, as errors. Thread: any; NCCL's words are of the last call of the process that failed.
#pragma once

#include <nccl.h>

#include <exception>
#include <string>

namespace drivetrain::nccl {

// Error(communication) where it is no success. Where CUDA has failed inside NCCL, what CUDA said is nested in it: the
// runtime's table knows which of that is no failure of the communicator.
void check_nccl(ncclResult_t result, const std::string& where, const char* what);

std::string nccl_words(ncclResult_t result);  // "unhandled cuda error (Cuda failure 2 'out of memory')"
// `said` as such an Error; null where NCCL does not say that CUDA has failed.
std::exception_ptr cuda_in_nccl(ncclResult_t result, const std::string& said);

}  // namespace drivetrain::nccl
