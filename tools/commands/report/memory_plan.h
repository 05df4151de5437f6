// What ranks' memory is for, in bytes by class, and whether it fits. Pure; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <vector>

#include "internal.h"
#include "plan/run_plan.h"

namespace drivetrain {

// "parameters", "gradients", "optimizer", "buffers", "activations"
DRIVETRAIN_INTERNAL const char* memory_class_name(MemoryClass memory_class);

constexpr MemoryClass kStateClasses[] = {MemoryClass::parameters, MemoryClass::gradients, MemoryClass::optimizer};
constexpr bool is_state(MemoryClass c) {
  return std::find(std::begin(kStateClasses), std::end(kStateClasses), c) != std::end(kStateClasses);
}

// Bytes of one rank: the classes that plugins know, and what only the runtime does.
struct MemoryTable {
  std::array<double, 5> bytes{};  // by MemoryClass
  double working = 0;             // temporaries of the visit that is computed at the fullest moment
  double slack = 0;               // what the allocator rounds up
  double context = 0;             // of the device, with its libraries' workspaces
  double communicator = 0;        // buffers of groups of ranks that no allocator counts
  double& operator[](MemoryClass c) { return bytes[static_cast<size_t>(c)]; }
  double operator[](MemoryClass c) const { return bytes[static_cast<size_t>(c)]; }
  DRIVETRAIN_INTERNAL double states() const;    // parameters, gradients and optimizer
  DRIVETRAIN_INTERNAL double passing() const;   // buffers, activations, working and slack
  DRIVETRAIN_INTERNAL double together() const;  // everything
};

// All rows of a table that are not states, with their names.
struct MemoryRow {
  const char* name;
  double bytes;
  std::string source;
};

// On a device with memory of its own, states count wherever they lie, as they are measured, and the rest of the table
// is the device's.
struct PlannedMemory : MemoryTable {
  std::array<std::string, 5> sources;  // who said so
  std::string working_source;          // the unit
  std::array<double, 5> host_bytes{};  // by MemoryClass: of states the part that lies there, others beside the table
  double host_working = 0;             // what the optimizer takes to update there, beside the table
  std::string host_source;
  DRIVETRAIN_INTERNAL double on_device(MemoryClass c) const;
  DRIVETRAIN_INTERNAL double states_on_host() const;
  DRIVETRAIN_INTERNAL double on_host() const;
  double on_device() const { return together() - states_on_host(); }
  DRIVETRAIN_INTERNAL std::vector<MemoryRow> passing_rows() const;
};

struct CheckpointBytes {
  double whole = 0, of_rank = 0;
};

// What a checkpoint of the run has, and about what each rank copies and writes of it; zeros where none is saved.
DRIVETRAIN_INTERNAL CheckpointBytes checkpoint_bytes(const RunPlan& plan);

// Of the device that a run is planned for, in bytes; 0 is not known.
struct DeviceCapacity {
  double bytes = 0;          // of one rank's device, or its share of the host
  double context = 0;        // taken before anything is allocated: context, workspaces of libraries
  double communicator = 0;   // of each group of more than one rank
  double fragmentation = 0;  // share of what passes that no allocation can use
};

// What plugins said of a rank of each stage, the optimizer's state, micro-batches.
DRIVETRAIN_INTERNAL std::vector<PlannedMemory> memory_by_stage(const RunPlan& plan, const DeviceCapacity& device = {});
// Of the stage that has most on its device.
DRIVETRAIN_INTERNAL PlannedMemory planned_memory(const RunPlan& plan);

// The ranks of a stage, ascending.
DRIVETRAIN_INTERNAL std::vector<int64_t> ranks_of_stage(const RunPlan& plan, int64_t stage);
DRIVETRAIN_INTERNAL int64_t stage_of_rank(const RunPlan& plan, int64_t rank);

// Whether ranks of one stage have memory enough.
struct MemoryVerdict {
  int64_t stage = 0, first_rank = 0, last_rank = 0, ranks = 0;
  double needed = 0, available = 0;  // bytes of the device
  bool fits() const { return needed <= available; }
};
DRIVETRAIN_INTERNAL std::vector<MemoryVerdict> memory_verdicts(const RunPlan& plan, const DeviceCapacity& device);
// "stage 0, 8 ranks from 0 to 7: 61.20 of 80.00 GiB, fits with 18.80 GiB left"
DRIVETRAIN_INTERNAL std::string verdict_text(const MemoryVerdict& verdict);

}  // namespace drivetrain
