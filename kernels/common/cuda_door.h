// Doors to the CUDA functions. Those lie in a library of their own, libdrivetrain_kernels_cuda.so, because a run on the
// CPU neither opens it nor has to wait until it is compiled. Callers are linked with a function of the same name and
// arguments in libdrivetrain_kernels.so, the door, which finds its namesake there when it is first called. The build
// writes a door for each declaration of a CUDA function (cuda_doors.cmake).
#pragma once

#include <dlfcn.h>

#include <type_traits>

namespace drivetrain::kernels {

inline constexpr int kNoCudaLibrary = 303;  // cudaErrorSharedObjectInitFailed

// The function of the CUDA library that has the symbol of this door, or null.
inline void* namesake(void* door) {
  static void* const library = dlopen("libdrivetrain_kernels_cuda.so", RTLD_NOW | RTLD_LOCAL);
  Dl_info info = {};
  const bool known = library && dladdr(door, &info) != 0 && info.dli_sname;
  return known ? dlsym(library, info.dli_sname) : nullptr;
}

template <auto kDoor, class... Arguments>
auto behind(const Arguments&... arguments) {
  static const auto function = reinterpret_cast<decltype(kDoor)>(namesake(reinterpret_cast<void*>(kDoor)));
  using Result = decltype(function(arguments...));
  if (function) return function(arguments...);
  if constexpr (std::is_same_v<Result, bool>)
    return false;  // nothing fits a kernel that is not there
  else
    return static_cast<Result>(kNoCudaLibrary);
}

}  // namespace drivetrain::kernels
