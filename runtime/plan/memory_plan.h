// What a rank's memory is for, in bytes by class. Pure; any thread.
#pragma once

#include <array>
#include <string>

#include "internal.h"
#include "plan/run_plan.h"

namespace drivetrain {

// "parameters", "gradients", "optimizer", "buffers", "activations"
DRIVETRAIN_INTERNAL const char* memory_class_name(MemoryClass memory_class);

constexpr MemoryClass kStateClasses[] = {MemoryClass::parameters, MemoryClass::gradients, MemoryClass::optimizer};

// Bytes of one rank.
struct MemoryTable {
  std::array<double, 5> bytes{};  // by MemoryClass
  double& operator[](MemoryClass c) { return bytes[static_cast<size_t>(c)]; }
  double operator[](MemoryClass c) const { return bytes[static_cast<size_t>(c)]; }
  DRIVETRAIN_INTERNAL double states() const;   // parameters, gradients and optimizer
  DRIVETRAIN_INTERNAL double passing() const;  // buffers and activations
};

struct PlannedMemory : MemoryTable {
  std::array<std::string, 5> sources;  // who said so
};

struct CheckpointBytes {
  double whole = 0, of_rank = 0;
};

// What a checkpoint of the run has, and about what each rank copies and writes of it; zeros where none is saved.
DRIVETRAIN_INTERNAL CheckpointBytes checkpoint_bytes(const RunPlan& plan);

// Of the fullest rank: what plugins said, the optimizer's state, activations.
DRIVETRAIN_INTERNAL PlannedMemory planned_memory(const RunPlan& plan);

}  // namespace drivetrain
