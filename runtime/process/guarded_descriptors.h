// Descriptors that the run cannot do without, so that a plugin that closes those of others is named before any harm is
// done: what is opened next would get their numbers, and receive what is written to them. The program looks at every
// call of `close` and its like that a plugin makes (tools/drivetrain/descriptors.cpp).
#pragma once

#include "internal.h"

namespace drivetrain {

// As long as it lives, and until its owner lets go of the descriptor to close it. Any thread.
class DRIVETRAIN_INTERNAL GuardedDescriptor {
 public:
  explicit GuardedDescriptor(int descriptor);  // -1: none
  ~GuardedDescriptor() { let_go(); }
  void let_go();
  GuardedDescriptor(const GuardedDescriptor&) = delete;
  GuardedDescriptor& operator=(const GuardedDescriptor&) = delete;

 private:
  int descriptor_;
};

}  // namespace drivetrain
