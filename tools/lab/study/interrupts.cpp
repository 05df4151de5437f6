#include "study/interrupts.h"

#include <csignal>
#include <initializer_list>

namespace drivetrain::study {
namespace {

volatile std::sig_atomic_t signals = 0, last_signal = 0;

extern "C" void remember_interrupt(int signal) {
  signals = signals + 1;
  last_signal = signal;
}

void handle(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
}

}  // namespace

Interrupts::Interrupts() {
  signals = 0;
  last_signal = 0;
  handle(remember_interrupt);
}
Interrupts::~Interrupts() { handle(SIG_DFL); }
int Interrupts::count() { return signals; }
int Interrupts::last() { return last_signal; }

}  // namespace drivetrain::study
