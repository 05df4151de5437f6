// Adds up where the time of each step goes. On an accelerator by marks in its stream, read after the last step, so that
// the watch makes nobody wait. Main thread.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <vector>

#include "bench/bench.h"
#include "contract/device_runtime.h"
#include "step/phase_clock.h"

namespace drivetrain {

using PhaseSeconds = std::array<double, kPhases>;  // by Phase

class PhaseWatch final : public PhaseClock {
 public:
  explicit PhaseWatch(const at::Device& device) : device_(device) {}

  void begin();  // before the first watched step
  void over(Phase phase) override;
  void end_step();
  // Of every step that ended; waits for the device.
  std::vector<PhaseSeconds> seconds() const;

 private:
  struct Mark {
    Phase phase = Phase::between;
    std::unique_ptr<DeviceMark> mark;
  };
  Mark mark_now(Phase phase) const;

  at::Device device_;
  std::chrono::steady_clock::time_point last_;
  std::vector<PhaseSeconds> on_host_;  // of every step, the one that runs last
  std::vector<std::vector<Mark>> on_device_;
  Mark first_;
};

}  // namespace drivetrain
