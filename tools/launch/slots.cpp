#include "launch/slots.h"

#include <algorithm>
#include <numeric>

#include <drivetrain/toolkit/text.h>

#include "cli/commands.h"

namespace drivetrain::program {

Slots::Slots(int count) : usable_(static_cast<size_t>(count)) { std::iota(usable_.begin(), usable_.end(), 0); }

void Slots::leave_out(int slot) { complete_ = std::erase(usable_, slot) == 0 && complete_; }

std::vector<std::string> Slots::environment(int ranks, const char* visible) const {
  if (complete_) return {};
  const std::vector<std::string> devices = visible ? cli::split(visible, ',') : std::vector<std::string>();
  std::vector<std::string> used;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto slot = static_cast<size_t>(of_rank(rank));
    if (visible && slot >= devices.size()) return {};  // fewer GPUs than ranks: they are not what the ranks run on
    used.push_back(visible ? devices[slot] : std::to_string(slot));
  }
  return {"CUDA_VISIBLE_DEVICES=" + join(used, ",")};
}

}  // namespace drivetrain::program
