#include "device/given_library.h"

#include <dlfcn.h>

#include <filesystem>
#include <memory>
#include <string>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

constexpr const char* kName = "libnccl.so.2";  // inside of it, by which LibTorch asks for it
constexpr int kOldest = 22800;                 // the release of LibTorch's, whose functions the communicator calls

struct Close {
  void operator()(void* library) const { dlclose(library); }
};
using OpenLibrary = std::unique_ptr<void, Close>;

std::string release_text(int version) { return concat(version / 10000, ".", version / 100 % 100, ".", version % 100); }

Error refused(const std::string& path, const std::string& why) {
  return fail(ErrorCode::config, kGivenLibrary, "=", path, ": ", why, "\n   name a ", kName, " of 2.",
              kOldest / 100 % 100, " or newer (NVIDIA's wheel of it for CUDA 13 has one), or leave the variable out: ",
              "then LibTorch's own is used");
}

// Nothing of it may be missing: what a library wants in vain is told here and not in the middle of a run.
OpenLibrary open_file(const std::string& path) {
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown)) throw refused(path, "there is no such file");
  if (std::filesystem::is_directory(path, unknown)) throw refused(path, "is a folder");
  OpenLibrary library(dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL));
  if (!library) throw refused(path, concat("cannot be opened: ", dlerror()));
  return library;
}

}  // namespace

void open_given_library(const char* given) {
  if (!given || !*given) return;
  const std::string path = std::filesystem::absolute(given);
  OpenLibrary library = open_file(path);
  const auto version_of = reinterpret_cast<int (*)(int*)>(dlsym(library.get(), "ncclGetVersion"));
  int version = 0;
  if (!version_of || version_of(&version) != 0) throw refused(path, concat("is no ", kName, ": it tells no version"));
  if (version < kOldest) throw refused(path, concat("is ", release_text(version), ", which is too old"));
  const OpenLibrary by_name(dlopen(kName, RTLD_NOW | RTLD_NOLOAD));
  if (by_name.get() != library.get())
    throw refused(path, by_name ? concat("comes too late: another ", kName, " is open (LD_PRELOAD?)")
                                : concat("has another name inside than ", kName, ", so nobody would use it"));
  static_cast<void>(library.release());  // stays open
}

}  // namespace drivetrain
