#include "nccl_errors.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <optional>
#include <string_view>

#include <drivetrain/error.h>

namespace drivetrain::nccl {
namespace {

constexpr const char* kMore = ". NCCL_DEBUG=INFO says more";

struct CudaFailure {
  int number = 0;  // of cudaError_t, which the driver's own numbers agree with; 0: not told
  std::string words;
};

std::string last_words() {
  const char* const last = ncclGetLastError(nullptr);
  return last == nullptr ? "" : last;
}

// "Cuda failure 2 'out of memory'", which some calls of most releases write without the number. Where memory is not to
// be had, "Failed to CUDA malloc 4194304 bytes" may take its place.
std::optional<CudaFailure> read_failure(const std::string& said) {
  for (const char* const no_memory : {"Failed to CUDA malloc", "Failed to CUDA calloc"})
    if (said.find(no_memory) != std::string::npos) return CudaFailure{2, "out of memory"};
  constexpr std::string_view kFailure = "Cuda failure ";
  const size_t begin = said.find(kFailure);
  if (begin == std::string::npos) return std::nullopt;
  const size_t open = said.find('\'', begin), close = said.rfind('\'');
  if (open == std::string::npos || open == close) return std::nullopt;
  return CudaFailure{std::atoi(said.c_str() + begin + kFailure.size()), said.substr(open + 1, close - open - 1)};
}

}  // namespace

std::string nccl_words(ncclResult_t result) {
  const std::string last = last_words();
  return concat(ncclGetErrorString(result), last.empty() ? "" : concat(" (", last, ")"));
}

std::exception_ptr cuda_in_nccl(ncclResult_t result, const std::string& said) {
  if (result != ncclUnhandledCudaError && result != ncclSystemError) return nullptr;
  const std::optional<CudaFailure> failure = read_failure(last_words());
  if (!failure) return nullptr;
  const std::string text = concat("CUDA error: ", failure->words, ", inside NCCL: ", said);
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  try {
    try {
      if (failure->number > 0) throw c10::AcceleratorError(here, failure->number, text);
      throw c10::Error(here, text);
    } catch (const c10::Error&) {
      std::throw_with_nested(fail(ErrorCode::communication, said, kMore));
    }
  } catch (const Error&) {
    return std::current_exception();
  }
}

void check_nccl(ncclResult_t result, const std::string& where, const char* what) {
  if (result == ncclSuccess) return;
  const std::string said = concat("communicator/nccl, ", where, ": ", what, " failed: ", nccl_words(result));
  if (const std::exception_ptr of_cuda = cuda_in_nccl(result, said)) std::rethrow_exception(of_cuda);
  throw fail(ErrorCode::communication, said, kMore);
}

}  // namespace drivetrain::nccl
