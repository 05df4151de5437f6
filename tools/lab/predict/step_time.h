// How long a step takes on a machine, and of what parts. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "predict/step_work.h"

namespace drivetrain {

struct TimePart {
  std::string what;
  double seconds = 0;
  double hidden = 0;  // seconds that other parts cover
};

struct StepTime {
  double seconds = 0;
  std::vector<TimePart> parts;  // they sum up to `seconds`
  double products_share = 0;    // of the peak that the products reach
  double tgs = 0, tflops = 0, mfu = 0;
  double samples_per_s = 0;  // sequences, of all ranks together
  DRIVETRAIN_INTERNAL Value to_value() const;
};

// Seconds of one product, by its shape.
DRIVETRAIN_INTERNAL double product_seconds(const ProductWork& product, const std::string& dtype,
                                           const Hardware& hardware);

// `model_flops`: per token, forward and backward, without what runs again. Error(config) where the machine's file has
// no peak for the type.
DRIVETRAIN_INTERNAL StepTime step_time(const StepWork& work, const Hardware& hardware, double model_flops);

}  // namespace drivetrain
