// Which GPUs the ranks of a host see, where slots of it were chosen.
#pragma once

#include <string>
#include <vector>

namespace drivetrain::program {

// The value of CUDA_VISIBLE_DEVICES that shows slot k, the k-th of `visible` (its value there; null: not set), as the
// device of the rank that has it. "": leave it as it is, because the slots are the first ones in order, or because
// `visible` has fewer entries and so is not what the ranks run on.
std::string devices_of_slots(const std::vector<int>& slots, const char* visible);

}  // namespace drivetrain::program
