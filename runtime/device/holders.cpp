#include "device/holders.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <type_traits>

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
  int (*count)(unsigned int* count) = nullptr;
  int (*by_index)(unsigned int index, void** device) = nullptr;
  int (*uuid)(void* device, char* text, unsigned int size) = nullptr;
  int (*by_uuid)(const char* uuid, void** device) = nullptr;
  int (*processes)(void* device, unsigned int* count, ProcessInfo* list) = nullptr;

  explicit Library(const char* name) {
    void* const handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);  // stays open
    if (!handle) return;
    const auto find = [handle](auto& function, const char* symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
    };
    find(init, "nvmlInit_v2");
    find(count, "nvmlDeviceGetCount_v2"), find(by_index, "nvmlDeviceGetHandleByIndex_v2"),
        find(uuid, "nvmlDeviceGetUUID");
    find(by_uuid, "nvmlDeviceGetHandleByUUID"), find(processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  }
  bool begun() const { return init && init() == 0; }
};

std::string name_of_process(int64_t pid) {
  std::string name;
  std::ifstream file(concat("/proc/", pid, "/comm"));
  std::getline(file, name);
  return name;
}

}  // namespace

std::string uuid_text(const std::string& digits, const std::string& name) {
  std::string text = name.find("MIG ") != std::string::npos ? "MIG-" : "GPU-";
  for (size_t i = 0; i < digits.size(); ++i)
    text += (i == 8 || i == 12 || i == 16 || i == 20 ? "-" : "") + digits.substr(i, 1);
  return text;
}

std::vector<std::string> devices_of_host(const char* name) {
  const Library library(name);
  unsigned int count = 0;
  if (!library.count || !library.by_index || !library.uuid || !library.begun() || library.count(&count) != 0) return {};
  std::vector<std::string> uuids;
  for (unsigned int i = 0; i < count; ++i) {
    void* device = nullptr;
    char text[96] = {};
    if (library.by_index(i, &device) == 0 && library.uuid(device, text, sizeof text) == 0) uuids.emplace_back(text);
  }
  return uuids;
}

std::vector<DeviceHolder> holders_of_device(const std::string& uuid, const char* name) {
  const Library library(name);
  void* device = nullptr;
  if (!library.by_uuid || !library.processes || !library.begun() || library.by_uuid(uuid.c_str(), &device) != 0)
    return {};
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
    if (holder.bytes >= 0) facts += concat(facts.empty() ? "" : ", ", holder.bytes >> 20, " MiB");
    text += concat(text.empty() ? "\n   it is held by process " : ", process ", holder.pid,
                   facts.empty() ? "" : " (" + facts + ")");
  }
  if (holders.size() > kMost) text += concat(" and ", holders.size() - kMost, " more");
  return text;
}

}  // namespace drivetrain
