// A model of four hand-written units whose gradients are known exactly, for suite.h.
//
// Every row adds, per element p of each parameter, a p + b p^2 / 2 to the loss, so its gradient is a + b p: a and b are
// small integers by (row, parameter, element) and values are multiples of powers of two, so that every sum is exact in
// float32 in any order and a strategy is right only if it is right to the bit. Where gradients or their sums are of
// 16 bits, b is 0: integers below 256 are exact in them too. Units compare what they see of their parameters with what
// it must be.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <drivetrain/unit.h>

namespace drivetrain::test {

struct ToyParam {
  const char* name;
  std::vector<int64_t> shape;
  int unit;
  bool trainable = true;
};

// `frozen_factor`: how many times as many rows frozen ones have.
std::vector<ToyParam> toy_params(int64_t frozen_factor);
inline constexpr const char* kTied = "embed.weight";  // the head computes with it too

// Small integers that look random, from `low` to `high`.
int64_t toy_number(uint64_t key, int64_t element, int64_t low, int64_t high);
float toy_initial(const std::string& name, int64_t element);

// What values are before a step, and what gradients must be in it, from the formulas alone.
struct ToyStep {
  std::map<std::string, std::vector<float>> masters, seen;  // seen: as units see them
  std::map<std::string, std::vector<double>> gradients;     // of the whole global batch
};

// The steps of a run with so many rows each, from the first one on. All ranks and all runs with the same rows and types
// have the same, so each is made once per process. Any thread, of one object one at a time.
class ToyTruth {
 public:
  ToyTruth(at::ScalarType working, bool integers, int64_t rows, int64_t frozen_factor = 1);

  const ToyStep& now() const { return *now_; }
  void next();

  static constexpr float kRate = 0x1p-4f;  // three steps from multiples of 1/8 stay within float32's 24 bits
  const bool integers;                     // as all gradients are
  const int64_t rows;                      // of a step
  const int64_t frozen_factor;             // see toy_params

 private:
  const at::ScalarType working_;
  int64_t step_ = 1;
  const ToyStep* now_;
};

// One of the chain; x and dy are not used, since every unit adds to the loss by itself.
class ToyUnit : public Unit {
 public:
  ToyUnit(std::string name, std::vector<ParamPtr> params, ToyTruth& truth)
      : Unit(std::move(name)), params_(std::move(params)), truth_(truth) {}

  std::vector<ParamPtr> params() const override { return params_; }
  Tensors forward(const Tensors& x, StepContext& ctx, Saved&) override;
  Tensors backward(const Tensors& dy, StepContext& ctx, Saved&) override;

 private:
  void check(const Param& param, const StepContext& ctx, const char* direction) const;
  void add_gradient(Param& param, const StepContext& ctx) const;

  const std::vector<ParamPtr> params_;
  ToyTruth& truth_;
};

UnitList toy_units(ToyTruth& truth);

class ToyContext : public StepContext {
 public:
  int64_t step() const override { return step_; }
  Mode mode() const override { return mode_; }
  const Batch& batch() const override { return batch_; }
  const Visit& visit() const override { return visits_.at(at_); }
  std::span<const Visit> ahead() const override {
    return std::span(visits_).subspan(std::min(at_ + 1, visits_.size()));
  }
  RandomKey random(std::string_view site) const override {
    return {1, static_cast<uint64_t>(step_), hash_name(site), 0, {}};
  }
  at::Tensor add_loss(const std::string&, const at::Tensor&, double) override { return {}; }
  void metric(const std::string&, const at::Tensor&) override {}

  int64_t step_ = 0;
  Mode mode_ = Mode::train;
  Batch batch_;
  std::vector<Visit> visits_;
  size_t at_ = 0;
};

}  // namespace drivetrain::test
