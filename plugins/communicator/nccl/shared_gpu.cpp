#include "shared_gpu.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>

#include <drivetrain/error.h>

#include "comm.h"

namespace drivetrain::nccl {
namespace {

constexpr const char* kVariable = "NCCL_MULTI_RANK_GPU_ENABLE";
constexpr const char* kShared = "shares_a_gpu";
constexpr int kSharesFrom = 23000;

// As NCCL reads it.
bool is_asked_for() {
  const char* const value = std::getenv(kVariable);
  return value && std::strtol(value, nullptr, 0) != 0;
}

int version_in_use() {
  int version = 0;
  check_nccl(ncclGetVersion(&version), "make_group", "ncclGetVersion");
  return version;
}

std::string text_of(int version) { return concat(version / 10000, ".", version / 100 % 100, ".", version % 100); }

std::string file_in_use() {
  Dl_info info = {};
  const bool known = dladdr(reinterpret_cast<const void*>(&ncclGetVersion), &info) != 0 && info.dli_fname;
  return known ? info.dli_fname : "an unknown file";
}

std::string digits(const cudaUUID_t& uuid) {
  std::string text;
  for (const char byte : uuid.bytes) text += concat(static_cast<int>(static_cast<unsigned char>(byte)), ".");
  return text;
}

}  // namespace

void check_shared_gpu(Board& board, int device) {
  if (!is_asked_for()) return;
  cudaDeviceProp gpu = {};
  check_cuda(cudaGetDeviceProperties(&gpu, device), "make_group", "cudaGetDeviceProperties");
  if (std::string_view(gpu.name).find("MIG ") != std::string_view::npos)
    throw fail(ErrorCode::config, "communicator/nccl: rank ", board.rank(), " has a slice of a GPU (", gpu.name,
               "), and ", kVariable,
               " is set: NCCL lets ranks share whole GPUs only, no slices (MIG)\n   leave the variable out and "
               "give each rank a GPU of its own, or switch MIG off");
  if (board.count("gpu/" + digits(gpu.uuid)) == 1) return;
  board.count(kShared);
  if (const int version = version_in_use(); version < kSharesFrom)
    throw fail(ErrorCode::config, "communicator/nccl: rank ", board.rank(), " shares GPU ", device, " (", gpu.name,
               ") with another rank, as ", kVariable, " wants: that needs NCCL ", text_of(kSharesFrom),
               " or newer, and the one in use is ", text_of(version), ", loaded from ", file_in_use(),
               "\n   DRIVETRAIN_NCCL=PATH names another library (nvidia/nccl/lib/libnccl.so.2 of a newer wheel "
               "nvidia-nccl-cu13); or give each rank a GPU of its own");
}

std::string library_in_use(Board& board) {
  const bool shared = is_asked_for() && board.counted(kShared);
  return concat(
      "communicator/nccl: NCCL ", text_of(version_in_use()), " of ", file_in_use(),
      shared ? concat("; ranks share a GPU (", kVariable, ") and take turns on it: times tell nothing of several GPUs")
             : "");
}

}  // namespace drivetrain::nccl
