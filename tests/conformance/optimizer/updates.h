// Parameters, gradients and arguments of an update to test optimizers with.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/optimizer.h>

namespace drivetrain::test {

// Normal numbers, the same for the same seed.
at::Tensor uneven_numbers(int64_t n, uint64_t seed, at::ScalarType type = at::kFloat);

ParamPtr test_param(const std::string& name, std::vector<int64_t> shape);

// A whole trainable of `param` with values from `value`; in bfloat16 mode `working` is another tensor.
Trainable trainable(const Optimizer& optimizer, const ParamPtr& param, const at::Tensor& value, bool bfloat16 = false);
// Three tensors, one of them large enough to be shared by threads and of a size no vector divides.
Trainables test_trainables(const Optimizer& optimizer, bool bfloat16 = false);
void set_grads(const Trainables& all, int64_t step);

// With the optimizer's own hyperparameters.
UpdateArgs update_args(const Optimizer& optimizer, int64_t step, double grad_scale = 1, bool skip = false);

// Keeps what an optimizer shows, and gives it back to another.
struct Keeper : StateVisitor {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, int64_t> integers;
  std::map<std::string, double> numbers;
  bool loading = false;
  void tensor(const std::string& name, at::Tensor& t, const Layout& layout) override {
    const std::string key = concat(name, "@", layout.begin);
    if (loading)
      t.copy_(tensors.at(key));
    else
      EXPECT_TRUE(tensors.emplace(key, t.clone()).second) << key << " twice";
  }
  void integer(const std::string& name, int64_t& value) override {
    if (loading)
      value = integers.at(name);
    else
      integers[name] = value;
  }
  void number(const std::string& name, double& value) override {
    if (loading)
      value = numbers.at(name);
    else
      numbers[name] = value;
  }
};

}  // namespace drivetrain::test
