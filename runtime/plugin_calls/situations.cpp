#include "plugin_calls/situations.h"

#include <c10/util/Exception.h>

#include <array>
#include <filesystem>
#include <ios>
#include <new>
#include <string_view>
#include <system_error>

#include "plugin_calls/device_errors.h"

namespace drivetrain {
namespace {

constexpr const char* kLess = "use a smaller micro-batch, model or sequence length, or end other programs";

constexpr const char* kLessOnGpu =
    "look who else holds it (nvidia-smi), and end that or take another GPU (CUDA_VISIBLE_DEVICES); else use a smaller "
    "micro-batch, model or sequence length, or recompute activations";
constexpr const char* kKernel =
    "CUDA_LAUNCH_BLOCKING=1 in the environment makes the call named here the one that failed (with \"capture\": "
    "false), compute-sanitizer names the kernel, and `dmesg | grep Xid` says whether the GPU itself has failed";

enum class Whose { host, gpu_memory, gpu };

struct Words {
  std::string_view in_text;
  ErrorCode code;
  const char *what, *remedy;
  Whose whose = Whose::host;
};

// Of texts of LibTorch; the first that fits counts. CUDA's own errors are in device_errors.inc.
constexpr auto kWords = std::to_array<Words>({
    {"can't allocate memory", ErrorCode::out_of_memory, "out of memory", kLess},
    {"not enough memory", ErrorCode::out_of_memory, "out of memory", kLess},
    {"Cannot allocate memory", ErrorCode::out_of_memory, "out of memory", kLess},
    {"CUDA out of memory", ErrorCode::out_of_memory, "out of memory on the GPU", kLessOnGpu, Whose::gpu_memory},
    // What cuBLAS and cuDNN say when there is no memory for their workspace.
    {"_STATUS_ALLOC_FAILED", ErrorCode::out_of_memory, "out of memory on the GPU, for cuBLAS or cuDNN", kLessOnGpu,
     Whose::gpu_memory},
    {"_STATUS_NOT_INITIALIZED", ErrorCode::out_of_memory, "no memory on the GPU for cuBLAS or cuDNN", kLessOnGpu,
     Whose::gpu_memory},
    // And what they say of a kernel that has failed, theirs or an earlier one.
    {"_STATUS_EXECUTION_FAILED", ErrorCode::plugin, "a kernel has failed, or the GPU has", kKernel, Whose::gpu},
    {"CUBLAS_STATUS_INTERNAL_ERROR", ErrorCode::plugin, "cuBLAS has failed, or a kernel before it", kKernel,
     Whose::gpu},
    {"CUDNN_STATUS_INTERNAL_ERROR", ErrorCode::plugin, "cuDNN has failed, or a kernel before it", kKernel, Whose::gpu},
    {"CUBLAS_STATUS_ARCH_MISMATCH", ErrorCode::plugin, "cuBLAS has no such product for this GPU",
     "choose another precision, or a newer GPU", Whose::gpu},
});

std::string gpu_place(Whose whose) {
  if (whose == Whose::host) return "";
  return whose == Whose::gpu ? device_place() : device_memory_place();
}

std::optional<Situation> known(const std::string& text) {
  for (const Words& words : kWords)
    if (text.find(words.in_text) != std::string::npos)
      return Situation{
          words.code,
          std::string(words.what) + ": " + text.substr(0, text.find("\nCompile with")) + gpu_place(words.whose),
          words.remedy};
  return std::nullopt;
}

std::optional<Situation> of_system(const std::system_error& e) {
  const std::string text = e.what();
  if (e.code() == std::errc::not_enough_memory)
    return Situation{ErrorCode::out_of_memory, "out of memory: " + text, kLess};
  // What a thread that cannot be started throws.
  if (e.code() == std::errc::resource_unavailable_try_again)
    return Situation{
        ErrorCode::io, "a thread cannot be started: " + text,
        "raise the limit of processes and threads (ulimit -u, a container's --pids-limit), or set \"threads\""};
  for (const std::errc open : {std::errc::too_many_files_open, std::errc::too_many_files_open_in_system})
    if (e.code() == open)
      return Situation{ErrorCode::io, "too many open files: " + text, "raise the limit: ulimit -n 65536"};
  // A thread joined twice or a mutex misused is a mistake of the program's.
  const bool of_file = dynamic_cast<const std::filesystem::filesystem_error*>(&e) != nullptr;
  for (const std::errc misused : {std::errc::invalid_argument, std::errc::resource_deadlock_would_occur,
                                  std::errc::no_such_process, std::errc::operation_not_permitted})
    if (!of_file && e.code() == misused) return std::nullopt;
  if (e.code().category() == std::generic_category() || e.code().category() == std::system_category())
    return Situation{ErrorCode::io, text, "look at the disk, its space and its permissions"};
  return std::nullopt;
}

// A plugin's library may tell only in words what CUDA told it. Where no table knows it, the plugin's own code holds.
std::optional<Situation> of_cause(const Error& e) {
  try {
    std::rethrow_if_nested(e);
  } catch (const std::exception& cause) {
    return situation_of(cause);
  } catch (...) {  // no cause that says anything
  }
  return std::nullopt;
}

}  // namespace

std::optional<Situation> situation_of(const std::exception& e) {
  if (const auto* error = dynamic_cast<const Error*>(&e)) return of_cause(*error);
  if (dynamic_cast<const std::bad_alloc*>(&e)) return Situation{ErrorCode::out_of_memory, "out of memory", kLess};
  if (const auto* torch = dynamic_cast<const c10::Error*>(&e)) {
    const std::string text = torch->what_without_backtrace();
    if (dynamic_cast<const c10::OutOfMemoryError*>(torch))
      return Situation{ErrorCode::out_of_memory, "out of memory on the GPU: " + text + device_memory_place(),
                       kLessOnGpu};
    if (auto device = device_situation(*torch)) return device;
    return known(text);
  }
  // std::ios_base::failure is one, too; a stream says no more than that it failed.
  if (const auto* failed = dynamic_cast<const std::ios_base::failure*>(&e))
    return Situation{ErrorCode::io, std::string("a file cannot be read or written: ") + failed->what(),
                     "look at the disk, its space and its permissions"};
  if (const auto* system = dynamic_cast<const std::system_error*>(&e)) return of_system(*system);
  return std::nullopt;
}

}  // namespace drivetrain
