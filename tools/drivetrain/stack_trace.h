// What the program shows of its own bugs. Works before and without the library. Main thread, first thing in main.
#pragma once

namespace drivetrain::program {

// An exception that nobody caught prints its type, its text and the stack and exits with 1. SIGSEGV and its like print
// the stack and end the process by that signal, so that core dumps and 128+n stay as they are.
void install_stack_traces();

}  // namespace drivetrain::program
