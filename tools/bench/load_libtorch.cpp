// Loads LibTorch as drivetrain does and says so: what `drivetrain bench startup` measures against.
//   drivetrain-load-libtorch FOLDER   the torch package folder
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: drivetrain-load-libtorch TORCH_FOLDER\n", stderr), 2;
  for (const char* name : {"/lib/libc10.so", "/lib/libtorch_cpu.so"}) {
    if (dlopen((argv[1] + std::string(name)).c_str(), RTLD_NOW | RTLD_GLOBAL)) continue;
    std::fprintf(stderr, "drivetrain-load-libtorch: %s\n", dlerror());
    return 1;
  }
  return std::puts("loaded") < 0 ? 1 : 0;
}
