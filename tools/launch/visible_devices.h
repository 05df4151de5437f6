// Which GPUs the ranks of a host see, where slots of it were chosen.
#pragma once

#include <string>
#include <vector>

namespace drivetrain::program {

// The value of CUDA_VISIBLE_DEVICES that shows slot k, the k-th of `visible` (its value there; null: not set), as the
// device of the rank that has it. "": leave it as it is, because the slots are the first ones in order, or because
// `visible` has fewer entries and so is not what the ranks run on.
std::string devices_of_slots(const std::vector<int>& slots, const char* visible);

// For slots that the user chose: throws HostError(2) where `visible` shows GPUs, and not that of every slot. One that
// shows none at all ("", "-1") is that of a run on CPUs, whose slots are only counted.
void check_slots(const std::vector<int>& slots, const char* visible);

// The value of CUDA_VISIBLE_DEVICES for the rank with that LOCAL_RANK of a host that shows `visible`: its own MIG
// instance alone where there are some, since CUDA gives a process the first of a list and no other. "": leave it as it
// is; ranks take their GPU from the list of all.
std::string own_device(const std::string& visible, int local_rank);

}  // namespace drivetrain::program
