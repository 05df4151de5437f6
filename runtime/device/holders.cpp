#include "device/holders.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain {
namespace {

// nvmlProcessInfo_t of nvml.h, as nvmlDeviceGetComputeRunningProcesses_v3 fills it.
struct ProcessInfo {
  unsigned int pid = 0;
  unsigned long long used = 0;  // all bits: not known
  unsigned int gpu_instance = 0, compute_instance = 0;
};
constexpr int kTooSmall = 7;  // NVML_ERROR_INSUFFICIENT_SIZE

struct Library {
  int (*init)() = nullptr;
  int (*by_uuid)(const char* uuid, void** device) = nullptr;
  int (*processes)(void* device, unsigned int* count, ProcessInfo* list) = nullptr;

  static Library open() {
    Library library;
    void* const handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);  // stays open
    if (!handle) return library;
    library.init = reinterpret_cast<int (*)()>(dlsym(handle, "nvmlInit_v2"));
    library.by_uuid = reinterpret_cast<int (*)(const char*, void**)>(dlsym(handle, "nvmlDeviceGetHandleByUUID"));
    library.processes = reinterpret_cast<int (*)(void*, unsigned int*, ProcessInfo*)>(
        dlsym(handle, "nvmlDeviceGetComputeRunningProcesses_v3"));
    return library;
  }
  bool usable() const { return init && by_uuid && processes && init() == 0; }
};

// "GPU-8-4-4-4-12" of the same digits.
std::string with_dashes(const std::string& uuid) {
  std::string text = "GPU-";
  for (size_t i = 0; i < uuid.size(); ++i)
    text += (i == 8 || i == 12 || i == 16 || i == 20 ? "-" : "") + uuid.substr(i, 1);
  return text;
}

std::string name_of_process(int64_t pid) {
  std::string name;
  std::ifstream file(concat("/proc/", pid, "/comm"));
  std::getline(file, name);
  return name;
}

}  // namespace

std::vector<DeviceHolder> holders_of_device(const std::string& uuid) {
  const Library library = Library::open();
  void* device = nullptr;
  if (!library.usable() || library.by_uuid(with_dashes(uuid).c_str(), &device) != 0) return {};
  std::vector<ProcessInfo> list(16);
  for (int tries = 0; tries < 4; ++tries) {
    auto count = static_cast<unsigned int>(list.size());
    const int status = library.processes(device, &count, list.data());
    if (status == kTooSmall) {
      list.resize(count + 16);
      continue;
    }
    if (status != 0) return {};
    std::vector<DeviceHolder> holders;
    for (unsigned int i = 0; i < count && i < list.size(); ++i)
      if (static_cast<int64_t>(list[i].pid) != getpid())
        holders.push_back({list[i].pid, list[i].used == ~0ULL ? -1 : static_cast<int64_t>(list[i].used),
                           name_of_process(list[i].pid)});
    std::sort(holders.begin(), holders.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    return holders;
  }
  return {};
}

std::string holders_text(const std::vector<DeviceHolder>& holders) {
  constexpr size_t kMost = 4;
  std::string text;
  for (size_t i = 0; i < std::min(holders.size(), kMost); ++i) {
    const DeviceHolder& holder = holders[i];
    std::string facts = holder.name;
    if (holder.bytes >= 0)
      facts += concat(facts.empty() ? "" : ", ", formatted("%.1f GB", static_cast<double>(holder.bytes) / 1e9));
    text += concat(text.empty() ? "\n   it is held by process " : ", process ", holder.pid,
                   facts.empty() ? "" : " (" + facts + ")");
  }
  if (holders.size() > kMost) text += concat(" and ", holders.size() - kMost, " more");
  return text;
}

}  // namespace drivetrain
