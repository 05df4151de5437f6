// What tests take for NVIDIA's library: two GPUs, whose counters go on by 1500 mJ each time they are asked.
extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 3;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  static unsigned long long counters[2] = {1000, 2000};
  if (index > 1) return 2;  // one that may not be seen
  *device = &counters[index];
  return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  *millijoules = *static_cast<unsigned long long*>(device) += 1500;
  return 0;
}
// {total, free, used}: one has 80 GB, one 42.
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* bytes) {
  void* first = nullptr;
  nvmlDeviceGetHandleByIndex_v2(0, &first);
  bytes[0] = device == first ? 80000000000 : 42000000000;
  return 0;
}
}
