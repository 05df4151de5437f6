#include "drivetrain/stack_trace.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <string>
#include <typeinfo>

#include "base/printable.h"
#include "launch/question.h"

namespace drivetrain::program {
namespace {

constexpr int kFrames = 64;
pid_t watched_process = 0;  // whose exit() is told
CurrentCall current_call = nullptr, any_call = nullptr;
GuardsDescriptor guards_descriptor = nullptr;
DeviceError device_error = nullptr;

// The call of libc's `_exit`, which this program takes the place of (below).
[[noreturn]] void leave(int code) {
  for (;;) syscall(SYS_exit_group, code);
}

void say(const char* text) {
  const ssize_t ignored = write(STDERR_FILENO, text, std::strlen(text));
  static_cast<void>(ignored);  // there is nobody left to tell
}

void print_stack() {
  void* frames[kFrames];
  say("stack (addr2line -Cfe FILE ADDRESS names a line):\n");
  backtrace_symbols_fd(frames, backtrace(frames, kFrames), STDERR_FILENO);
}

std::string description_of_current_exception() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (!type) return "std::terminate without an exception";
  int status = 0;
  char* readable = abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
  std::string text = std::string("uncaught ") + (readable ? readable : type->name());
  std::free(readable);
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::exception& e) {
    text += std::string(": ") + e.what();
  } catch (...) {  // a type without a text; its name must do
  }
  return text;
}

bool wants_traces() {
  const char* level = std::getenv("DRIVETRAIN_LOG");
  return level && std::strcmp(level, "debug") == 0;
}

// Only a destructor's exception, or one out of a plugin's own noexcept function, comes here: it cannot be caught.
[[noreturn]] void blame_plugin(const char* call) {
  const std::string thrown = description_of_current_exception();
  if (wants_traces()) print_stack();
  const std::string text = drivetrain::printable(
      std::string("drivetrain: error: in ") + call + ": " + thrown.substr(0, thrown.find('\n')) +
      "\n   what a destructor throws cannot be caught: the run ends here. Leave out the plugin, or mend it\n");
  say(text.c_str());
  leave(3);
}

// The library of a plugin whose code is on this stack, the innermost; empty: none. Plugins are opened from copies in
// memory, whose name the link of their descriptor has.
std::string plugin_on_stack() {
  void* frames[kFrames];
  const int count = backtrace(frames, kFrames);
  for (int i = 0; i < count; ++i) {
    Dl_info info = {};
    if (dladdr(frames[i], &info) == 0 || !info.dli_fname) continue;
    void* const library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) continue;
    const bool is_plugin = dlsym(library, "drivetrain_plugin") != nullptr;
    dlclose(library);
    if (!is_plugin) continue;
    std::error_code unknown;
    const std::filesystem::path link = std::filesystem::read_symlink(info.dli_fname, unknown);
    std::string name = (unknown ? std::filesystem::path(info.dli_fname) : link).filename().string();
    name = name.substr(0, name.find(' '));  // "memfd:NAME (deleted)"
    return name.starts_with("memfd:") ? name.substr(6) : name;
  }
  return "";
}

bool is_out_of_memory() {
  try {
    if (std::current_exception()) std::rethrow_exception(std::current_exception());
  } catch (const std::bad_alloc&) {
    return true;
  } catch (...) {
  }
  return false;
}

// The message comes last, where it is seen, and where the launcher quotes it; LibTorch's texts bring a stack
// themselves.
[[noreturn]] void on_terminate() {
  char call[512], device[2048];
  if (const int code = device_error ? device_error(device, sizeof device) : 0; code != 0) {
    say(drivetrain::printable(std::string("drivetrain: error: ") + device + "\n").c_str());
    leave(code);
  }
  if (current_call && current_call(call, sizeof call)) blame_plugin(call);
  if (is_out_of_memory()) {
    say("drivetrain: error: out of memory before the run began\n   raise the limit of address space (`ulimit -v`; a "
        "run takes "
        "1 GB and what the model needs), or free some memory\n");
    leave(4);
  }
  if (const std::string plugin = plugin_on_stack(); !plugin.empty()) {
    const std::string thrown = description_of_current_exception();
    if (wants_traces()) print_stack();
    say(drivetrain::printable("drivetrain: error: in " + plugin +
                              ", on a thread of its own: " + thrown.substr(0, thrown.find('\n')) +
                              "\n   nobody can catch that: the run ends here. Leave out the plugin, or mend it\n")
            .c_str());
    leave(3);
  }
  const std::string text =
      drivetrain::printable("drivetrain: internal error, please report it: " + description_of_current_exception());
  print_stack();
  say((text + "\n").c_str());
  const size_t first_line = text.find('\n');
  if (first_line != std::string::npos) say((text.substr(0, first_line) + "\n").c_str());
  leave(1);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // these explain crashes better
// Only calls that are safe in a handler, but for backtrace, which is once its library is loaded.
void on_crash(int signal) {
  say("drivetrain: crashed by signal ");
  const char number[] = {static_cast<char>('0' + signal / 10), static_cast<char>('0' + signal % 10), 0};
  say(signal < 10 ? number + 1 : number);
  char call[512];
  if (current_call && current_call(call, sizeof call)) say(" in "), say(call);
  say("\n");
  print_stack();
  raise(signal);  // SA_RESETHAND: now with its default action
}

void install_crash_handlers() {
  static char own_stack[64 * 1024];  // a stack overflow leaves no room on the other
  stack_t stack = {};
  stack.ss_sp = own_stack;
  stack.ss_size = sizeof own_stack;
  sigaltstack(&stack, nullptr);
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads libgcc now
  struct sigaction action = {};
  action.sa_handler = on_crash;
  action.sa_flags = SA_ONSTACK | SA_NODEFER | static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigaction(signal, &action, nullptr);
}
#else
void install_crash_handlers() {}
#endif

// The main thread may wait for another one, which is in the call.
void on_question(int) {
  char call[512];
  if (!any_call || !any_call(call, sizeof call)) return;
  say("drivetrain: error: in "), say(call);
  say(": has not returned, while the other ranks waited for it until their time-out\n   the plugin hangs there: leave "
      "it "
      "out, or mend it\n");
  leave(kDidNotGoOn);
}

[[noreturn]] void blame_exit(const char* function, int code) {
  std::cout.flush();
  char call[512];
  const bool in_plugin = current_call && current_call(call, sizeof call);
  say((std::string("drivetrain: error: ") + (in_plugin ? std::string("in ") + call + ": " : "") + function +
       "() was called with code " + std::to_string(code) +
       " before the run was done\n   a plugin, or a library that it brings, must throw and not end the process\n")
          .c_str());
  leave(code == 0 ? 3 : code);
}

void on_exit_by_others(int code, void*) {
  if (watched_process == getpid()) blame_exit("exit", code);  // else the run is over, or this is a child of somebody's
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Whoever leaves with 0 in the middle of a run makes it look done. Other codes tell that something was wrong.
[[noreturn]] void leave_if_allowed(const char* function, int code) {
  if (code == 0 && watched_process == getpid()) blame_exit(function, code);
  leave(code);
}
#endif

}  // namespace

ExitWatch::ExitWatch() {
  [[maybe_unused]] static const int installed = on_exit(on_exit_by_others, nullptr);
  watched_process = getpid();
}

ExitWatch::~ExitWatch() { watched_process = 0; }

void install_stack_traces() {
  std::set_terminate(on_terminate);
  install_crash_handlers();
  struct sigaction action = {};
  action.sa_handler = on_question;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigaction(ask_signal(), &action, nullptr);
  signal(SIGUSR2, SIG_IGN);  // a question to ranks that train, which comes to all processes of a run
}

void tell_guarded_descriptors(GuardsDescriptor guards) { guards_descriptor = guards; }

void refuse_closing(unsigned first, unsigned last) {
  if (!guards_descriptor || !guards_descriptor(first, last)) return;
  char call[512];
  if (watched_process != getpid() || !current_call || !current_call(call, sizeof call)) return;
  say("drivetrain: error: in "), say(call);
  say(": closes descriptors of the run that are not its own\n   a plugin must close those alone that it has opened\n");
  leave(3);
}

void tell_device_errors(DeviceError error) { device_error = error; }

void tell_plugin_calls(CurrentCall current, CurrentCall any) { current_call = current, any_call = any; }

}  // namespace drivetrain::program

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // these have their own
// Libraries that are opened later look for these names in the program first.
extern "C" [[noreturn]] __attribute__((visibility("default"))) void _exit(int code) {
  drivetrain::program::leave_if_allowed("_exit", code);
}
extern "C" [[noreturn]] __attribute__((visibility("default"))) void _Exit(int code) noexcept {
  drivetrain::program::leave_if_allowed("_Exit", code);
}
#endif
