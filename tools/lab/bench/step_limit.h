// The least that a training step could take on this machine: its matrix products alone, and then the bytes that have to
// move between them at the bandwidth that simple loops reach. Nothing is said of what the step does besides.
#pragma once

#include "bench/products.h"
#include "plan/prepared_run.h"

namespace drivetrain {

// Bytes of one step on one rank.
struct StepBytes {
  double update = 0;       // values, moments and gradients, read and written as often as one pass for the norm and one
                           // for the update do
  double activations = 0;  // what backward passes need, written once and read once; 0 where the blocks do not say
  double all() const { return update + activations; }
};
DRIVETRAIN_INTERNAL StepBytes step_bytes(const RunPlan& plan);

struct StepLimit {
  double products_s = 0, bandwidth = 0;  // bytes per second
  StepBytes bytes;
  double update_bandwidth = 0;  // of the host's memory, where what is updated lies there; 0: as `bandwidth`
  double update_s() const { return bytes.update / (update_bandwidth > 0 ? update_bandwidth : bandwidth); }
  double memory_s() const { return bytes.activations / bandwidth + update_s(); }
  double seconds() const { return products_s + memory_s(); }
  DRIVETRAIN_INTERNAL Value to_value(double step_s) const;
  // A line with the share that a step of `step_s` seconds reaches.
  DRIVETRAIN_INTERNAL std::string text(double step_s) const;
};

// Measures the bandwidth; about a second.
StepLimit measure_limit(const PreparedRun& run, const Products& products);

}  // namespace drivetrain
