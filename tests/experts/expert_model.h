// A small model with experts in one process: what the ranks of two_groups_test.cpp must compute together.
//
// h = W x + b, y = A[expert] h + c, loss = the sum of (y - target)^2 / 2 over tokens. Values are multiples of 1/4
// between -1 and 1, and an update keeps them so: every number below is exact in float32, whatever the order of sums.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/round.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <string>
#include <vector>

#include <drivetrain/random.h>

#include <drivetrain/testkit/data_parallel/chain.h>

namespace drivetrain::test {

struct ExpertModel {
  static constexpr int64_t kIn = 64, kHidden = 32, kExperts = 4, kTokens = 32, kSteps = 3;
  static constexpr uint64_t kSeed = 11;

  struct Shape {
    const char* name;
    std::vector<int64_t> sizes;
  };
  static std::vector<Shape> shapes() {
    return {{"in.weight", {kHidden, kIn}},
            {"in.bias", {kHidden}},
            {"experts.weight", {kExperts, kHidden, kHidden}},
            {"out.bias", {kHidden}}};
  }

  // Tokens [first, first + count) of a step. Experts are chosen unevenly; in step 2 the last two get no token.
  struct Tokens {
    at::Tensor x, target;          // [count, kIn], [count, kHidden]
    std::vector<int64_t> experts;  // of each
  };
  static Tokens tokens(int64_t step, int64_t first, int64_t count, at::ScalarType dtype) {
    Tokens t{at::empty({count, kIn}, dtype), at::empty({count, kHidden}, dtype), {}};
    const auto fill = [&](at::Tensor to, uint64_t key, int64_t width, int64_t most) {
      for (int64_t i = 0; i < count * width; ++i)
        to.view(-1)[i].fill_(toy_number(key + static_cast<uint64_t>(step), first * width + i, -most, most));
    };
    fill(t.x, 100, kIn, 1);
    fill(t.target, 200, kHidden, 2);
    for (int64_t n = first; n < first + count; ++n) {
      const int64_t drawn = toy_number(300 + static_cast<uint64_t>(step), n, 0, 7);  // half of them go to expert 0
      t.experts.push_back(drawn < kExperts ? 0 : step == 2 ? drawn % 2 : drawn - kExperts);
    }
    return t;
  }

  static void round_values(at::Tensor values) { values.mul_(4).round_().clamp_(-4, 4).div_(4); }
  static void update(at::Tensor values, const at::Tensor& grad) {
    values.sub_(grad.div(16).round_().clamp_(-2, 2).div_(4)).clamp_(-1, 1);
  }
  static InitRule init() { return InitRule::normal(0.5); }

  ExpertModel() {
    for (const Shape& shape : shapes()) {
      at::Tensor drawn = at::empty({Layout::whole(shape.sizes).global_numel()}, at::kFloat);
      fill_normal(drawn, kSeed, shape.name, 0, init().std);
      round_values(drawn);
      values[shape.name] = drawn.to(at::kDouble).view(shape.sizes);
    }
  }

  // Leaves loss and gradients of the whole batch.
  void compute(int64_t step) {
    const Tokens t = tokens(step, 0, kTokens, at::kDouble);
    loss = 0;
    for (const Shape& shape : shapes()) gradients[shape.name] = at::zeros(shape.sizes, at::kDouble);
    for (int64_t n = 0; n < kTokens; ++n) {
      const int64_t expert = t.experts[static_cast<size_t>(n)];
      const at::Tensor x = t.x[n], weight = values["experts.weight"][expert];
      const at::Tensor h = values["in.weight"].mv(x).add_(values["in.bias"]);
      const at::Tensor d = weight.mv(h).add_(values["out.bias"]).sub_(t.target[n]), dh = weight.t().mv(d);
      loss += d.mul(d).sum().item<double>() / 2;
      gradients["out.bias"].add_(d);
      gradients["experts.weight"][expert].add_(d.outer(h));
      gradients["in.bias"].add_(dh);
      gradients["in.weight"].add_(dh.outer(x));
    }
  }
  double sum_of_squares() const {
    double sum = 0;
    for (const auto& [name, grad] : gradients) sum += grad.mul(grad).sum().item<double>();
    return sum;
  }
  void update() {
    for (auto& [name, value] : values) update(value, gradients.at(name));
  }

  std::map<std::string, at::Tensor> values, gradients;
  double loss = 0;
};

}  // namespace drivetrain::test
