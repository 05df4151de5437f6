#include <drivetrain/toolkit/communicator/memory_use.h>

namespace drivetrain::toolkit {

bool Use::conflicts(const Use& other) const {
  const auto meet = [](const auto& some, const auto& others) {
    for (const Range& a : some)
      for (const Range& b : others)
        if (a.meets(b)) return true;
    return false;
  };
  return meet(written, other.written) || meet(written, other.read) || meet(read, other.written);
}

}  // namespace drivetrain::toolkit
