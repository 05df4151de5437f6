// The runtime's StepContext: one per rank, told before every call which visit it is about.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <drivetrain/step_context.h>

namespace drivetrain {

class StepState final : public StepContext {
 public:
  explicit StepState(uint64_t seed) : seed_(seed) {}

  int64_t step() const override { return step_; }
  Mode mode() const override { return mode_; }
  const Batch& batch() const override { return batches_.at(visit().micro); }
  const Visit& visit() const override { return visits_.at(at_); }
  std::span<const Visit> ahead() const override { return std::span(visits_).subspan(std::min(at_ + 1, visits_.size())); }
  RandomKey random(std::string_view site) const override {
    return {seed_, static_cast<uint64_t>(step_), hash_name(site), batch().first_sample};
  }
  void metric(const std::string& name, const at::Tensor& scalar) override { metrics_[name] = scalar; }

  void begin(int64_t step, Mode mode, std::vector<Visit> visits) {
    step_ = step, mode_ = mode, visits_ = std::move(visits), at_ = 0;
    batches_.clear();
    metrics_.clear();
  }
  void set_batch(int64_t micro, Batch batch) { batches_[micro] = std::move(batch); }
  const Batch& batch_of(int64_t micro) const { return batches_.at(micro); }
  void drop_batch(int64_t micro) { batches_.erase(micro); }
  void next_visit() { ++at_; }
  const std::map<std::string, at::Tensor>& metrics() const { return metrics_; }

 private:
  uint64_t seed_;
  int64_t step_ = 0;
  Mode mode_ = Mode::train;
  std::vector<Visit> visits_;
  size_t at_ = 0;  // index of the current visit
  std::map<int64_t, Batch> batches_;
  std::map<std::string, at::Tensor> metrics_;
};

}  // namespace drivetrain
