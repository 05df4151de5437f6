// Slots: parts of this host in which runs of a study go side by side, each with cores and GPUs of its own.
#pragma once

#include <string>
#include <vector>

#include "study/cell_plan.h"
#include "study/design.h"

struct hwloc_topology;

namespace drivetrain::study {

// What runs of a slot get beside their cell's own.
struct Slot {
  std::vector<int> cpus;  // numbers of the kernel; empty: all
  std::string cores;      // the same in words, "0-3"
  std::string devices;    // CUDA_VISIBLE_DEVICES; "": as it is
};

// The slots that "dispatch" asks for, all of one size; one of everything where it asks for none. `devices`: GPUs that
// this host shows. Throws Error(config) where there are too few cores, or where slots share some.
std::vector<Slot> slots_of(const StudyFile& study, hwloc_topology* topology, const std::vector<std::string>& devices);
// Of this host.
std::vector<Slot> slots_here(const StudyFile& study);

// What a slot cannot give: other hosts, more GPUs than it has, devices that a cell chooses itself. Throws
// Error(config).
void check_slots(const std::vector<Slot>& slots, const std::vector<Cell>& cells, const std::vector<CellPlan>& plans,
                 const std::string& path);

// "0-2,5"
std::string list_text_of(const std::vector<int>& numbers);

}  // namespace drivetrain::study
