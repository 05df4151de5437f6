// What tests take for NVIDIA's management library: two GPUs, one of which this process and two others hold.
#include <unistd.h>

#include <cstring>

struct ProcessInfo {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

namespace {
const char* const kUuids[] = {"GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", "GPU-ffffffff-0405-0607-0809-0a0b0c0d0e0f"};
int devices[2];
}  // namespace

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 2, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) { return *device = &devices[index], 0; }
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  std::strncpy(text, kUuids[static_cast<int*>(device) - devices], size);
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  for (int i = 0; i < 2; ++i)
    if (std::strcmp(uuid, kUuids[i]) == 0) return *device = &devices[i], 0;
  return 6;  // NVML_ERROR_NOT_FOUND
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, ProcessInfo* list) {
  if (device != &devices[0]) return *count = 0, 0;
  // More than fit at first, as on a GPU that many share.
  if (*count < 20) return *count = 20, 7;
  *count = 3;
  list[0] = {2147483001, 1ULL << 30, 0, 0};
  list[1] = {static_cast<unsigned>(getpid()), 5ULL << 30, 0, 0};
  list[2] = {2147483002, 70ULL << 30, 0, 0};
  return 0;
}
}
