#include "device/open_device.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include <drivetrain/error.h>
#include "contract/device_runtime.h"
#include "device/given_library.h"
#include "device/holders.h"
#include "device/no_device.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

constexpr int kOldestArch = 80;  // bfloat16 and what our kernels are compiled for begin there

fs::path file_of(const void* function) {
  Dl_info info = {};
  return dladdr(function, &info) != 0 && info.dli_fname ? fs::path(info.dli_fname) : fs::path();
}

std::string own_library() {
  const fs::path path = file_of(reinterpret_cast<const void*>(&open_device)).parent_path() / "libdrivetrain_cuda.so";
  if (!fs::exists(path))
    throw fail(ErrorCode::config,
               "\"device\": \"cuda\" is not in this build: it was made without nvcc 13, so there is no ", path.string(),
               "\n   build again where nvcc 13 is on the PATH, or use \"device\": \"cpu\"");
  return path;
}

void open_torch_cuda() {
  const fs::path path = fs::path(torch_folder()) / "lib/libtorch_cuda.so";
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) return;  // global, as the rest of LibTorch is
  const std::string said = dlerror();
  throw fail(ErrorCode::config, "\"device\": \"cuda\" needs all of LibTorch's CUDA libraries; the dynamic linker says ",
             said, "\n   LibTorch is ", torch_folder(),
             "\n   bring them: DRIVETRAIN_TORCH=$(tools/setup/deps gpu)/torch (2.5 GB), or set DRIVETRAIN_TORCH to the "
             "`torch` folder of an installed torch with its nvidia packages");
}

DeviceRuntime* open_own(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const std::string said = library ? "" : dlerror();
  if (!library)
    throw fail(ErrorCode::config, "cannot open ", path, ": ", said, "\n   build or install all of Drivetrain again");
  const auto factory = reinterpret_cast<DeviceRuntime* (*)()>(dlsym(library, "drivetrain_device_runtime"));
  if (!factory)
    throw fail(ErrorCode::config, path, " is not of this build\n   build or install all of Drivetrain again");
  return factory();
}

}  // namespace

std::string torch_folder() {
  // Any function of LibTorch tells where it was loaded from: <torch>/lib/libc10.so.
  return file_of(reinterpret_cast<const void*>(&c10::GetExceptionString)).parent_path().parent_path();
}

void open_device(const std::string& device) {
  if (device == "cpu" || device_runtime()) return;
  // The driver reads it with the first call. Each communicator has a stream of its own, a stage of a pipeline a dozen:
  // with the default of 8 hardware queues a message may wait behind a receive that waits for it.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  const std::string own = own_library();
  open_given_library(std::getenv(kGivenLibrary));
  open_torch_cuda();
  DeviceRuntime* const runtime = open_own(own);
  check_age(*runtime);
  set_device_runtime(runtime);
}

void check_age(const DeviceRuntime& runtime) {
  for (int64_t i = 0; i < runtime.count(); ++i)
    if (const DeviceFacts facts = runtime.facts(i); facts.arch < kOldestArch)
      throw fail(ErrorCode::config, "GPU ", i, " (", facts.name, ") is sm_", facts.arch, "; sm_", kOldestArch,
                 " or newer is needed\n   hide it with CUDA_VISIBLE_DEVICES, or use \"device\": \"cpu\"");
}

void use_device(const std::string& device, int64_t local_rank, int64_t local_size) {
  if (device == "cpu") return;
  if (!device_runtime()) throw fail(ErrorCode::internal, "\"device\": \"", device, "\" is used before it was opened");
  const int64_t count = device_runtime()->count();
  if (local_size > count && count != 1 && !ranks_may_share_devices())
    throw fail(ErrorCode::config, local_size, " ranks of this host need a GPU each, and this process sees ", count,
               visible_text(std::getenv("CUDA_VISIBLE_DEVICES")), "\n   start ", count,
               " ranks per host (drivetrain launch -n ", count,
               "), or let every rank see all GPUs (CUDA_VISIBLE_DEVICES)");
  device_runtime()->use(device_index(local_rank, local_size));
}

int64_t device_index(int64_t local_rank, int64_t local_size) {
  if (!device_runtime()) return local_rank;
  const int64_t count = device_runtime()->count();
  const bool hidden = count == 1 && local_size > 1;
  return hidden || (local_size > count && ranks_may_share_devices()) ? local_rank % count : local_rank;
}

// As the library that reads it does.
bool ranks_may_share_devices() {
  const char* const value = std::getenv(kShareDevices);
  return value && std::strtol(value, nullptr, 0) != 0;
}

void check_own_device(Store& store, int64_t rank, int64_t local_rank, int64_t local_size) {
  if (!device_runtime()) return;
  const DeviceFacts facts = device_runtime()->facts(device_index(local_rank, local_size));
  if (facts.uuid.empty() || store.add("device/" + facts.uuid, 1) == 1) return;
  const bool is_slice = facts.name.find("MIG ") != std::string::npos;
  if (ranks_may_share_devices() && !is_slice) return;  // the communicator says whether it can
  throw fail(
      ErrorCode::config, "rank ", rank, " and another rank of this run have one and the same GPU (", facts.name,
      ", UUID ", facts.uuid, "); each of the ", local_size, " ranks of this host needs one of its own",
      is_slice
          ? concat("\n   it is a slice of a GPU (MIG), which ranks cannot share, whatever ", kShareDevices, " says")
          : "",
      "\n   start as many ranks as there are GPUs (drivetrain launch -n 1 where there is one), or give each rank "
      "another one (CUDA_VISIBLE_DEVICES, srun --gpus-per-task=1)",
      is_slice ? ""
               : concat("\n   for tests ranks may share a whole GPU: ", kShareDevices,
                        "=1, with a libnccl of 2.30 or newer (", kGivenLibrary, "=PATH)"));
}

}  // namespace drivetrain
