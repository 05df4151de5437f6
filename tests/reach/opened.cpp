// A library that is loaded before libc (LD_PRELOAD) and writes down which files of this checkout its process opens, one
// a line, into $DRIVETRAIN_OPENED.PID: "read PATH" for what libc's functions open, "loaded PATH" for the program, the
// libraries that it starts with and those that it opens by dlopen. Paths outside $DRIVETRAIN_OPENED_IN, a folder, are
// left out.
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr size_t kLongestPath = 4096;
using Path = std::array<char, kLongestPath + 16>;

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// Appends `number` to `text`, which ends at `end`. Nothing here allocates: a signal handler may open a file.
char* append(char* end, const char* text) {
  const size_t length = std::strlen(text);
  std::memcpy(end, text, length + 1);
  return end + length;
}
char* append(char* end, long number) {
  char* behind = std::to_chars(end, end + 20, number).ptr;
  *behind = 0;
  return behind;
}

// Whether a path is met for the first time. A full table forgets, and a path is written again.
bool is_new(const char* path, const char* how) {
  static std::array<std::atomic<uint64_t>, 8192> seen{};
  uint64_t hash = 1469598103934665603u + static_cast<unsigned char>(*how);
  for (; *path; ++path) hash = (hash ^ static_cast<unsigned char>(*path)) * 1099511628211u;
  return seen[hash % seen.size()].exchange(hash | 1) != (hash | 1);
}

// The file is opened and closed for each line: a program under test may close or count its descriptors.
void write_line(const char* log, const char* how, const char* path) {
  static auto* open_file = next<int(const char*, int, ...)>("open");
  Path name, line;
  if (std::strlen(log) > kLongestPath - 32 || std::strlen(path) > kLongestPath - 32) return;
  append(append(append(name.data(), log), "."), static_cast<long>(getpid()));
  const int file = open_file(name.data(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return;
  const char* const end = append(append(append(line.data(), how), path), "\n");
  [[maybe_unused]] const ssize_t written = write(file, line.data(), static_cast<size_t>(end - line.data()));
  close(file);
}

// `path` is one as the kernel knows it: absolute, without links.
void note(const char* how, const char* path) {
  const char* log = std::getenv("DRIVETRAIN_OPENED");
  const char* folder = std::getenv("DRIVETRAIN_OPENED_IN");
  if (log && folder && std::strncmp(path, folder, std::strlen(folder)) == 0 && is_new(path, how))
    write_line(log, how, path);
}

void note_link(const char* how, const char* link) {
  Path path;
  const ssize_t length = readlink(link, path.data(), kLongestPath);
  if (length > 0) path[static_cast<size_t>(length)] = 0, note(how, path.data());
}

void note_file(int file) {
  if (file < 0) return;
  const int error = errno;
  Path link;
  append(append(link.data(), "/proc/self/fd/"), static_cast<long>(file));
  note_link("read ", link.data());
  errno = error;
}

__attribute__((constructor)) void note_start() {
  note_link("loaded ", "/proc/self/exe");
  dl_iterate_phdr([](dl_phdr_info* info, size_t, void*) { return note("loaded ", info->dlpi_name), 0; }, nullptr);
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & (O_CREAT | __O_TMPFILE)) ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
}

}  // namespace

// The true dlopen goes by who called it, so it is jumped to, as the caller's own call: this returns where it is.
extern "C" void* drivetrain_note_dlopen(const char* path) {
  static auto* original = next<void*(const char*, int)>("dlopen");
  if (path && *path == '/') note("loaded ", path);
  return reinterpret_cast<void*>(original);
}
__asm__(
    ".globl dlopen\n.type dlopen, @function\ndlopen:\n"
    "  push %rdi\n  push %rsi\n  sub $8, %rsp\n"
    "  call drivetrain_note_dlopen@PLT\n"
    "  add $8, %rsp\n  pop %rsi\n  pop %rdi\n  jmp *%rax\n"
    ".size dlopen, . - dlopen\n");

#define DRIVETRAIN_NOTES_OPEN(name)                                  \
  extern "C" int name(const char* path, int flags, ...) {            \
    static auto* original = next<int(const char*, int, ...)>(#name); \
    va_list arguments;                                               \
    va_start(arguments, flags);                                      \
    const mode_t mode = mode_of(flags, arguments);                   \
    va_end(arguments);                                               \
    const int file = original(path, flags, mode);                    \
    note_file(file);                                                 \
    return file;                                                     \
  }
#define DRIVETRAIN_NOTES_OPENAT(name)                                     \
  extern "C" int name(int folder, const char* path, int flags, ...) {     \
    static auto* original = next<int(int, const char*, int, ...)>(#name); \
    va_list arguments;                                                    \
    va_start(arguments, flags);                                           \
    const mode_t mode = mode_of(flags, arguments);                        \
    va_end(arguments);                                                    \
    const int file = original(folder, path, flags, mode);                 \
    note_file(file);                                                      \
    return file;                                                          \
  }
#define DRIVETRAIN_NOTES_FOPEN(name)                                      \
  extern "C" FILE* name(const char* path, const char* mode) {             \
    static auto* original = next<FILE*(const char*, const char*)>(#name); \
    FILE* file = original(path, mode);                                    \
    if (file) note_file(fileno(file));                                    \
    return file;                                                          \
  }

DRIVETRAIN_NOTES_OPEN(open)
DRIVETRAIN_NOTES_OPEN(open64)
DRIVETRAIN_NOTES_OPENAT(openat)
DRIVETRAIN_NOTES_OPENAT(openat64)
DRIVETRAIN_NOTES_FOPEN(fopen)
DRIVETRAIN_NOTES_FOPEN(fopen64)
