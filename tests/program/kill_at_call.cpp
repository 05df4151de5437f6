// A library that is loaded before libc (LD_PRELOAD) and kills its process at a call that touches a checkpoint's files:
// the KILL_AT_CALL-th of rank KILL_RANK, counted from 1. Where KILL_COUNT names a file, each rank writes its count to
// the one with its number behind that name.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr const char* kPlace = "/checkpoints";

long number_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::strtol(text, nullptr, 10) : -1;
}

// Descriptors of files of checkpoints.
std::array<std::atomic<bool>, 4096> ours;
std::atomic<long> calls = 0;

bool is_place(const char* path) { return std::strstr(path, kPlace) != nullptr; }
bool is_place(int descriptor) {
  return descriptor >= 0 && static_cast<size_t>(descriptor) < ours.size() && ours[static_cast<size_t>(descriptor)];
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// After every call, since a program may end without running destructors.
void write_count(long count) {
  static const char* const name = std::getenv("KILL_COUNT");
  if (!name) return;
  static const std::string path = name + std::to_string(number_of("RANK"));
  static const int file = next<int(const char*, int, ...)>("open")(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  char text[24];
  const int length = std::snprintf(text, sizeof text, "%ld\n", count);
  static auto* const write_at = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  if (write_at(file, text, static_cast<size_t>(length), 0) != length) std::abort();
}

void count_call() {
  static const bool is_rank = number_of("RANK") >= 0, dies = number_of("RANK") == number_of("KILL_RANK");
  static const long at = number_of("KILL_AT_CALL");
  if (!is_rank) return;
  const long count = ++calls;
  if (dies && count == at) kill(getpid(), SIGKILL);
  write_count(count);
}

int remember(int descriptor, const char* path) {
  if (descriptor >= 0 && static_cast<size_t>(descriptor) < ours.size())
    ours[static_cast<size_t>(descriptor)] = is_place(path);
  return descriptor;
}

}  // namespace

// Calls that only look (O_RDONLY) are not counted: they change nothing that a kill could leave half done.
extern "C" {

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) ? va_arg(more, mode_t) : 0;
  va_end(more);
  if (is_place(path) && (flags & O_ACCMODE) != O_RDONLY) count_call();
  static auto* const real = next<int(const char*, int, ...)>("open");
  return remember(real(path, flags, mode), path);
}
int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) ? va_arg(more, mode_t) : 0;
  va_end(more);
  if (is_place(path) && (flags & O_ACCMODE) != O_RDONLY) count_call();
  static auto* const real = next<int(const char*, int, ...)>("open64");
  return remember(real(path, flags, mode), path);
}
ssize_t pwrite(int descriptor, const void* data, size_t bytes, off_t offset) {
  if (is_place(descriptor)) count_call();
  static auto* const real = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return real(descriptor, data, bytes, offset);
}
ssize_t pwrite64(int descriptor, const void* data, size_t bytes, off64_t offset) {
  if (is_place(descriptor)) count_call();
  static auto* const real = next<ssize_t(int, const void*, size_t, off64_t)>("pwrite64");
  return real(descriptor, data, bytes, offset);
}
int fallocate(int descriptor, int mode, off_t offset, off_t bytes) {
  if (is_place(descriptor)) count_call();
  static auto* const real = next<int(int, int, off_t, off_t)>("fallocate");
  return real(descriptor, mode, offset, bytes);
}
int fsync(int descriptor) {
  if (is_place(descriptor)) count_call();
  static auto* const real = next<int(int)>("fsync");
  return real(descriptor);
}
int close(int descriptor) {
  if (is_place(descriptor)) count_call(), ours[static_cast<size_t>(descriptor)] = false;
  static auto* const real = next<int(int)>("close");
  return real(descriptor);
}
int mkdir(const char* path, mode_t mode) noexcept {
  if (is_place(path)) count_call();
  static auto* const real = next<int(const char*, mode_t)>("mkdir");
  return real(path, mode);
}
int rmdir(const char* path) noexcept {
  if (is_place(path)) count_call();
  static auto* const real = next<int(const char*)>("rmdir");
  return real(path);
}
int unlink(const char* path) noexcept {
  if (is_place(path)) count_call();
  static auto* const real = next<int(const char*)>("unlink");
  return real(path);
}
int rename(const char* from, const char* to) noexcept {
  if (is_place(from)) count_call();
  static auto* const real = next<int(const char*, const char*)>("rename");
  return real(from, to);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  if (is_place(from)) count_call();
  static auto* const real = next<int(int, const char*, int, const char*, unsigned)>("renameat2");
  return real(from_folder, from, to_folder, to, flags);
}

}  // extern "C"
