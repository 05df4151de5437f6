// What tests take for NVIDIA's driver: of the release that STAND_IN_DRIVER says (12080 for CUDA 12.8), and with no
// device that this process may see.
#include <cstdlib>
#include <cstring>

extern "C" {
int cuDriverGetVersion(int* version) {
  const char* const said = std::getenv("STAND_IN_DRIVER");
  return *version = said ? std::atoi(said) : 12080, 0;
}
int cuInit(unsigned) { return 100; }  // CUDA_ERROR_NO_DEVICE
// CUDA's runtime asks for all that it may ever call.
int cuGetProcAddress_v2(const char* name, void** function, int, unsigned long long, int* found) {
  static const auto not_here = [] { return 999; };
  static int (*const nothing)() = not_here;
  if (found) *found = 0;
  *function = reinterpret_cast<void*>(nothing);
  if (std::strcmp(name, "cuDriverGetVersion") == 0) *function = reinterpret_cast<void*>(cuDriverGetVersion);
  if (std::strcmp(name, "cuInit") == 0) *function = reinterpret_cast<void*>(cuInit);
  if (std::strcmp(name, "cuGetProcAddress") == 0) *function = reinterpret_cast<void*>(cuGetProcAddress_v2);
  return 0;
}
int cuGetProcAddress(const char* name, void** function, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}
}
