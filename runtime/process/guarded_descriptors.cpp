#include "process/guarded_descriptors.h"

#include <algorithm>
#include <array>
#include <atomic>

#include <drivetrain/export.h>

namespace drivetrain {
namespace {

constexpr unsigned kMost = 4096;  // descriptors beyond are not guarded
std::array<std::atomic<bool>, kMost> guarded{};

std::atomic<bool>* place_of(int descriptor) {
  return descriptor >= 0 && static_cast<unsigned>(descriptor) < kMost ? &guarded[static_cast<size_t>(descriptor)]
                                                                      : nullptr;
}

}  // namespace

GuardedDescriptor::GuardedDescriptor(int descriptor) : descriptor_(descriptor) {
  if (auto* place = place_of(descriptor_)) *place = true;
}

void GuardedDescriptor::let_go() {
  if (auto* place = place_of(descriptor_)) *place = false;
  descriptor_ = -1;
}

}  // namespace drivetrain

// Whether one of these, the last included, is guarded. For the program's `close`: any thread, also in a handler.
extern "C" DRIVETRAIN_API bool drivetrain_guards_descriptor(unsigned first, unsigned last) {
  using namespace drivetrain;
  for (unsigned at = first; at <= std::min(last, kMost - 1); ++at)
    if (guarded[at]) return true;
  return false;
}
