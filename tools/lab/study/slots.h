// Slots, in which runs of a study go side by side: parts of this host, each with cores and GPUs of its own, or hosts.
#pragma once

#include <string>
#include <vector>

#include "study/cell_plan.h"
#include "study/design.h"

struct hwloc_topology;

namespace drivetrain::study {

// What runs of a slot get beside their cell's own.
struct Slot {
  std::vector<int> cpus = {};  // numbers of the kernel; empty: all
  std::string cores = {};      // the same in words, "0-3"
  std::string devices = {};    // CUDA_VISIBLE_DEVICES; "": as it is
  std::string hosts = {};      // its hostfile; "": it is of this host
  std::string names = {};      // of these hosts, "a, b"

  std::string place() const { return hosts.empty() ? "cores " + cores : "hosts " + names; }
};

// The slots that "dispatch" asks for, all of one size; one of everything where it asks for none. `devices`: GPUs that
// this host shows. Throws Error(config) where there are too few cores, or where slots share some, or a host.
std::vector<Slot> slots_of(const StudyFile& study, hwloc_topology* topology, const std::vector<std::string>& devices);
// Of this host.
std::vector<Slot> slots_here(const StudyFile& study);

// Ranks of a hostfile of the study in `path`: all its slots. Throws Error(config).
int64_t ranks_of_hostfile(const std::string& hostfile, const std::string& path);

// Hosts of cells that have run have as many ranks as then. Throws Error(config).
void check_ranks(const std::vector<CellPlan>& plans, const std::string& path);

// What a slot cannot give: other hosts, more GPUs than it has, devices that a cell chooses itself. Throws
// Error(config).
void check_slots(const std::vector<Slot>& slots, const std::vector<Cell>& cells, const std::vector<CellPlan>& plans,
                 const std::string& path);

// "0-2,5"
std::string list_text_of(const std::vector<int>& numbers);

}  // namespace drivetrain::study
