// How the launcher asks a rank that the others have waited for in vain what it is doing.
#pragma once

#include <csignal>

namespace drivetrain::program {

// SIGUSR2 is the user's. A rank that is in a plugin's call says in which (drivetrain/stack_trace.h) and exits with 5,
// as a rank that did not go on does: a restart may help. Any other rank takes no notice.
inline int ask_signal() { return SIGRTMIN + 4; }
constexpr int kDidNotGoOn = 5;

}  // namespace drivetrain::program
