// What the program shows of crashes and of exceptions that nobody caught. Works before and without the library. Main
// thread, first thing in main.
#pragma once

#include <cstddef>

namespace drivetrain::program {

// An exception that nobody caught prints its type, its text and the stack and exits with 1; where a plugin was being
// called, it prints which one and where, and exits with 3. SIGSEGV and its like print the stack, and the plugin if one
// was being called, and end the process by that signal, so that core dumps and 128+n stay as they are. ask_signal()
// (launch/question.h) is the launcher's question to a rank that the others have waited for in vain: one that is in a
// plugin's call says in which, and exits with 5; any other goes on.
void install_stack_traces();

// Once the library is open: its word for the plugin call that the thread is in, and for one that any thread is in.
// False if there is none. Safe in a handler of signals.
using CurrentCall = bool (*)(char* text, size_t size);
void tell_plugin_calls(CurrentCall current_call, CurrentCall any_call);
// What a device says of the exception that ends the process: the exit code and the text; 0: it is none of a device.
using DeviceError = int (*)(char* text, size_t size);
void tell_device_errors(DeviceError device_error);
// The same for whether one of these descriptors is the run's own.
using GuardsDescriptor = bool (*)(unsigned first, unsigned last);
void tell_guarded_descriptors(GuardsDescriptor guards);
// Before a thread closes these: a plugin that would close the run's own ends the run, with code 3, and is named.
void refuse_closing(unsigned first, unsigned last);

// As long as it lives nobody else may end the process by exit(): that would look like a run that is done. It is told,
// with the plugin if one was being called, and the exit code is 3 in place of 0; other codes stay. So is `_exit`, which
// the program has in the place of libc's.
class ExitWatch {
 public:
  ExitWatch();
  ~ExitWatch();
  ExitWatch(const ExitWatch&) = delete;
  ExitWatch& operator=(const ExitWatch&) = delete;
};

}  // namespace drivetrain::program
