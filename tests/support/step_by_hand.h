// The parts of a step without a run: units, an optimizer and a schedule of a few lines each. Thread: main.
#pragma once

#include <gtest/gtest.h>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <string>
#include <vector>

#include <drivetrain/lr_schedule.h>
#include <drivetrain/mesh.h>
#include <drivetrain/schedule.h>

#include "step/executor.h"
#include "step/finish.h"

namespace drivetrain::test {

inline at::Tensor float32(std::vector<float> values) {
  at::Tensor t = at::zeros({static_cast<int64_t>(values.size())}, at::TensorOptions(at::kFloat));
  std::copy(values.begin(), values.end(), t.mutable_data_ptr<float>());
  return t;
}

inline ParamPtr parameter_by_hand(const std::string& name, const at::Tensor& values) {
  auto param = std::make_shared<Param>(name, Layout::whole({values.numel()}), InitRule());
  param->tensor = values;
  param->grad = at::zeros_like(values);
  return param;
}

// value -= lr * grad_scale * grad
struct PlainDescent : Optimizer {
  std::vector<Hyper> groups() const override { return {{0.5, 0, 0}}; }
  int group_of(const Param&) const override { return 0; }
  double state_bytes_per_element(const Param&) const override { return 0; }
  void init(const Trainables&) override {}
  void state(StateVisitor&) override {}
  void update(const Trainables& chunk, const UpdateArgs& args) override {
    const double step = args.hyper[0][0].item<double>() * args.grad_scale.item<double>();
    for (const Trainable& t : chunk) at::Tensor(t.value).sub_(t.grad, step);
  }
};

struct SteadyRate : LrSchedule {
  Hyper at(const Progress&, const Hyper& base) const override { return base; }
};

// All micro-batches forward and backward, one after another, on one stage.
struct OneStage : Schedule {
  int64_t stages() const override { return 1; }
  std::vector<int64_t> partition(const std::vector<double>&) const override { return {0}; }
  int64_t slots(int64_t, int64_t) const override { return 1; }
  Program program(int64_t, int64_t micro_batches, Pass pass) const override {
    Program list;
    for (int16_t m = 0; m < micro_batches; ++m) {
      list.push_back({Op::load, m});
      list.push_back({Op::forward, m});
      if (pass == Pass::train) list.push_back({Op::backward, m});
    }
    return list;
  }
};

struct KeptLines : Log {
  void write(LogLevel, const std::string& line) override { lines.push_back(line); }
  void progress(const std::string&) override {}
  std::vector<std::string> lines;
};

// Notes the hooks that are called.
struct NotedHooks : Strategy {
  NotedHooks(std::string own_name, std::vector<std::string>& all) : name(std::move(own_name)), hooks(all) {}
  void step_begin(StepContext&) override { hooks.push_back(name + " step_begin"); }
  void before_forward(const Visit&, StepContext&) override { hooks.push_back(name + " before_forward"); }
  void after_backward(const Visit&, StepContext&) override { hooks.push_back(name + " after_backward"); }
  void flush_grads(StepContext&) override { hooks.push_back(name + " flush_grads"); }
  void after_update(Trainables&, StepContext&) override { hooks.push_back(name + " after_update"); }
  std::string name;
  std::vector<std::string>& hooks;
};

template <class Body>
std::string error_text(const Body& body, ErrorCode code) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace drivetrain::test
