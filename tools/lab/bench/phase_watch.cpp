#include "bench/phase_watch.h"

namespace drivetrain {

PhaseWatch::Mark PhaseWatch::mark_now(Phase phase) const {
  Mark mark{phase, device_runtime()->new_mark(device_)};
  mark.mark->record();
  return mark;
}

void PhaseWatch::begin() {
  last_ = std::chrono::steady_clock::now();
  on_host_.assign(1, {});
  on_device_.clear();
  on_device_.emplace_back();
  if (!device_.is_cpu()) first_ = mark_now(Phase::between);
}

void PhaseWatch::over(Phase phase) {
  if (!device_.is_cpu()) {
    on_device_.back().push_back(mark_now(phase));
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  on_host_.back()[static_cast<size_t>(phase)] += std::chrono::duration<double>(now - last_).count();
  last_ = now;
}

void PhaseWatch::end_step() {
  on_host_.push_back({});
  on_device_.emplace_back();
}

std::vector<PhaseSeconds> PhaseWatch::seconds() const {
  std::vector<PhaseSeconds> steps(on_host_.begin(), on_host_.end() - 1);
  const DeviceMark* earlier = first_.mark.get();
  for (size_t i = 0; i < steps.size(); ++i)
    for (const Mark& mark : on_device_[i]) {
      steps[i][static_cast<size_t>(mark.phase)] += mark.mark->seconds_since(*earlier);
      earlier = mark.mark.get();
    }
  return steps;
}

}  // namespace drivetrain
