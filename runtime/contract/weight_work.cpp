#include <drivetrain/weight_work.h>

#include <utility>

namespace drivetrain {
namespace {
thread_local std::shared_ptr<WeightWork> current_weight_work;
}

std::shared_ptr<WeightWork> WeightWork::current() {
  return current_weight_work ? current_weight_work : std::make_shared<WeightWork>();
}

void WeightWork::run(std::function<void()> work) {
  if (later_)
    later_->push_back(std::move(work));
  else
    work();
}

CurrentWeightWork::CurrentWeightWork(std::shared_ptr<WeightWork> work)
    : before_(std::exchange(current_weight_work, std::move(work))) {}
CurrentWeightWork::~CurrentWeightWork() { current_weight_work = std::move(before_); }

}  // namespace drivetrain
